"""Machine code is kept on disk, is never stale, and a lost or damaged cache costs a compilation, never the run."""

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numba
import pytest
from numba.core import caching

import fastpe
from fastpe.base.files import lock_folder
from fastpe.kernels import _jit

PACKAGE = Path(fastpe.__file__).parent

# prints what was compiled, then a value that a helper in another file determines, then why nothing is cached
PROGRAM = """
import numpy as np
from fastpe.kernels import _jit
_jit.on_compile = lambda what: print("compiled", what)
from fastpe.kernels import arrays
print("value", arrays.gelu_forward(np.ones(1))[0])
print("problem", _jit.cache_problem)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may edit."""
    shutil.copytree(PACKAGE, tmp_path / "source" / "fastpe", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "source"


def run(package: Path, cache: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "FASTPE_CACHE_DIR": str(cache)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=package, capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_second_process_compiles_nothing_and_an_edited_helper_is_never_answered_by_old_code(package, tmp_path):
    cache = tmp_path / "cache"
    first = run(package, cache)
    assert "compiled" in first
    second = run(package, cache)
    assert "compiled" not in second
    assert second["value"] == first["value"]

    helper = package / "fastpe" / "kernels" / "activation.py"  # not the file that holds the cached function
    source = helper.read_text()
    line = "share = where_negative(v, tail, one - tail)"
    assert line in source
    helper.write_text(source.replace(line, f"{line} * splat(scalar(x, 3.0))"))
    edited = run(package, cache)
    assert "compiled" in edited
    assert float(edited["value"]) == pytest.approx(3 * float(first["value"]), rel=1e-14)


def test_the_cache_belongs_to_the_user_alone(package, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    run(package, cache)
    (folder,) = cache.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755  # the user's own folder stays as it is
    folder.chmod(0o755)
    assert "not a folder of this user alone" in run(package, cache)["problem"]


# Folders above it ----------------------------------------------------------------------------------------------------

OTHER = 54321  # a user's number


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens the cache below a folder, as the start of a process does; returns the folder and the problem."""
    monkeypatch.setattr(_jit, "code_digest", lambda: "0" * 20)  # reading all sources takes longer

    def open_cache(root):
        monkeypatch.setenv("FASTPE_CACHE_DIR", str(root))
        monkeypatch.setattr(_jit, "cache_problem", None)
        return _jit._open_folder(), _jit.cache_problem

    return open_cache


def belongs_to(monkeypatch, path, owner):
    """Pretend that a folder belongs to another user."""
    lstat = Path.lstat

    def pretended(self):
        found = lstat(self)
        return os.stat_result((*found[:4], owner, *found[5:10])) if self == path else found

    monkeypatch.setattr(Path, "lstat", pretended)


needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files")


@needs_owners
@pytest.mark.parametrize("place", ["a", "a/b", "a/b/cache"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o720, 0o702])
def test_nobody_else_may_write_to_a_folder_above_the_cache(tmp_path, opened, place, mode):
    (tmp_path / "a/b/cache").mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    folder, problem = opened(tmp_path / "a/b/cache")
    assert folder is None
    assert problem.startswith(
        f"{tmp_path / place}, on the way to the compile cache {tmp_path / 'a/b/cache'}, has mode "
    )
    assert f"mode {mode:04o}, " in problem
    assert not any((tmp_path / "a/b/cache").iterdir())


@needs_owners
def test_a_sticky_folder_may_be_written_to_by_all(tmp_path, opened):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    folder, problem = opened(tmp_path / "shared" / "cache")
    assert problem is None
    assert folder.parent == tmp_path / "shared" / "cache"
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@needs_owners
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("place", ["a", "a/cache"])
def test_every_folder_above_the_cache_belongs_to_the_user_or_to_root(tmp_path, opened, monkeypatch, place, sticky):
    (tmp_path / "a/cache").mkdir(parents=True)
    (tmp_path / place).chmod(0o1755 if sticky else 0o755)
    with monkeypatch.context() as patch:
        belongs_to(patch, tmp_path / place, OTHER)
        folder, problem = opened(tmp_path / "a/cache")
    assert folder is None
    assert f"{tmp_path / place}, on the way to the compile cache" in problem
    assert f"belongs to user {OTHER}" in problem
    with monkeypatch.context() as patch:
        belongs_to(patch, tmp_path / "a", 0)
        assert opened(tmp_path / "a/cache")[1] is None


@needs_owners
def test_a_link_is_resolved_once(tmp_path, opened):
    """Where it leads to is checked, and used from then on: changing the link changes nothing."""
    for name, mode in (("own", 0o755), ("open", 0o777)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    link = tmp_path / "link"
    link.symlink_to("own")
    folder, problem = opened(link / "cache")
    assert problem is None
    assert folder.parent == tmp_path / "own" / "cache"
    link.unlink()
    link.symlink_to("open")
    assert f"{tmp_path / 'open'}, on the way to" in opened(link / "cache")[1]
    (tmp_path / "planted").symlink_to(tmp_path / "own")
    with pytest.raises(PermissionError, match=r"planted, on the way to .*, is not a folder"):
        _jit._check_path(tmp_path / "planted" / "cache")


@pytest.mark.skipif(os.name == "nt", reason="no permissions")
def test_a_umask_takes_nothing_from_the_user(tmp_path, opened):
    before = os.umask(0o777)
    try:
        folder, problem = opened(tmp_path / "new" / "cache")
        assert problem is None
        _jit._CacheFile(str(folder), "kernel", "stamp").save("a", "code of a")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("kernel*")} == {0o600}


def test_a_damaged_cache_is_compiled_anew(package, tmp_path):
    cache = tmp_path / "cache"
    first = run(package, cache)
    damaged = 0
    for path in cache.rglob("*.nb?"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        damaged += 1
    assert damaged
    again = run(package, cache)
    assert "compiled" in again
    assert again["value"] == first["value"]


def test_a_cache_that_cannot_be_written_is_done_without(package, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    result = run(package, blocked / "cache")
    assert "compiled" in result
    assert result["problem"] != "None"


def save_at_once(kind, folder):
    """What is found under two names, where the second process read the index before the first one saved, and saves all
    that it has before the first one's code is there."""
    first, second = (kind(str(folder), "kernel", "stamp") for _ in range(2))
    save_code = first._save_data

    def meanwhile(name, code):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(second, "_load_index", dict)
            second.save("b", "code of b")
        save_code(name, code)

    first._save_data = meanwhile
    first.save("a", "code of a")
    return [second.load(name) for name in "ab"]


def test_processes_that_save_at_once_find_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "_PATIENCE", 0.0)
    assert save_at_once(_jit._CacheFile, tmp_path) == [None, "code of b"]  # the other is compiled again
    if numba.__version__.startswith("0.68."):
        (tmp_path / "numbas").mkdir()
        assert save_at_once(caching.IndexDataCacheFile, tmp_path / "numbas") == [None, "code of a"]


def test_what_is_forgotten_leaves_no_files(tmp_path):
    kept, other = (_jit._CacheFile(str(tmp_path), name, "stamp") for name in ("kernel", "kernels"))
    for number in range(3):
        kept.save(number, "code")
    other.save("a", "code of a")
    kept.flush()
    assert kept.load(0) is None
    assert other.load("a") == "code of a"
    assert len([*tmp_path.glob("*.nbc")]) == 1


def test_a_process_waits_for_one_that_saves(tmp_path):
    held = lock_folder(tmp_path)
    other = _jit._CacheFile(str(tmp_path), "kernel", "stamp")
    saving = threading.Thread(target=other.save, args=("a", "code of a"))
    saving.start()
    saving.join(0.1)
    assert saving.is_alive() == (held._descriptor is not None)
    assert not any(tmp_path.iterdir()) or held._descriptor is None
    held.close()
    saving.join()
    assert other.load("a") == "code of a"


def test_old_digests_are_pruned(package, tmp_path):
    cache = tmp_path / "cache"
    for number in range(9):
        old = cache / f"{number:020x}"
        old.mkdir(parents=True)
        (old / _jit._MARKER).touch()
    own = [cache / "thesis", cache / ("f" * 20), cache / ("e" * 20)]  # not made by fastpe
    for folder in own:
        folder.mkdir(parents=True, exist_ok=True)
    run(package, cache)
    assert all(folder.is_dir() for folder in own)
    assert len([folder for folder in cache.iterdir() if folder not in own]) == 4
