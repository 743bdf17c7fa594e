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
