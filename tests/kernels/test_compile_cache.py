"""Machine code is kept on disk, is never stale, and a lost or damaged cache costs a compilation, never the run."""

import json
import os
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path

import code_digests
import pytest

import fastpe
from fastpe.kernels.compile import cache, sources

PACKAGE = Path(fastpe.__file__).parent

# prints what was compiled, then a value that a helper in another file determines, then why nothing is cached
PROGRAM = """
import numpy as np
from fastpe.kernels.compile import cache
cache.on_compile = lambda what: print("compiled", what)
from fastpe.kernels import arrays
print("value", arrays.gelu_forward(np.ones(1))[0])
print("problem", cache.problem)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may edit."""
    shutil.copytree(PACKAGE, tmp_path / "source" / "fastpe", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "source"


def run(package: Path, cache: Path, program: str = PROGRAM) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "FASTPE_CACHE_DIR": str(cache)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=package, capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.full("starts processes")
def test_second_process_compiles_nothing_and_an_edited_helper_is_never_answered_by_old_code(package, tmp_path):
    cache = tmp_path / "cache"
    first = run(package, cache)
    assert "compiled" in first
    second = run(package, cache)
    assert "compiled" not in second
    assert second["value"] == first["value"]

    helper = package / "fastpe" / "kernels" / "rows" / "activation.py"  # not the file that holds the cached function
    source = helper.read_text()
    line = "share = where_negative(v, tail, one - tail)"
    assert line in source
    helper.write_text(source.replace(line, f"{line} * splat(scalar(x, 3.0))"))
    edited = run(package, cache)
    assert "compiled" in edited
    assert float(edited["value"]) == pytest.approx(3 * float(first["value"]), rel=1e-14)
    helper.write_text(source)
    assert "compiled" not in run(package, cache)


@pytest.mark.full("starts processes")
def test_digests_of_machine_code_change_with_the_code_alone(package, tmp_path):
    activation = package / "fastpe" / "kernels" / "rows" / "activation.py"
    source = activation.read_text()
    digests = []
    edits = {"as it is": source, "comment": f"{source}# edited", "other code": source.replace("tail, one", "one, tail")}
    for name, text in edits.items():
        activation.write_text(text)
        run(package, tmp_path / name)
        digests.append(code_digests.digests(tmp_path / name))
    assert digests[0]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


DIGESTS = """
import json
from fastpe.kernels.compile import sources
names = ("kernels.model.batch", "kernels.arrays", "kernels.threads.team", "encodings.bias.alibi", "encodings.bias.fire")
print("digests", json.dumps({name: sources.digest_of(f"fastpe.{name}") for name in names}))
"""


@pytest.mark.full("starts processes")
@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("encodings/bias/alibi.py", {"encodings.bias.alibi"}),
        ("encodings/parts/distance_runs.py", {"encodings.bias.alibi"}),
        ("training/loop.py", set()),
        ("kernels/model/layer.py", {"kernels.model.batch"}),
        ("kernels/rows/activation.py", {"kernels.model.batch", "kernels.arrays"}),
        ("kernels/simd/vector.py", None),
        ("kernels/compile/pipeline.py", None),
        ("kernels/simd/__init__.py", None),
    ],
)
def test_an_edit_changes_the_digests_of_what_imports_it(package, tmp_path, edited, changed):
    before = json.loads(run(package, tmp_path, DIGESTS)["digests"])
    assert None not in before.values()
    with (package / "fastpe" / edited).open("a") as file:
        file.write("# edited")
    after = json.loads(run(package, tmp_path, DIGESTS)["digests"])
    found = {name for name in before if before[name] != after[name]}
    assert found == (before.keys() if changed is None else changed)


@pytest.mark.full("starts processes")
def test_code_whose_source_changed_after_the_import_is_not_kept(tmp_path, package):
    """What was imported may be another state of the file than what is there now."""
    edit = f"{DIGESTS}time.sleep(0.05)\nPath(fastpe.__file__).parent.joinpath('kernels/simd/vector.py').touch()\n"
    program = f"import time, fastpe\nfrom pathlib import Path{edit}{DIGESTS}".replace('"digests"', '"before"', 1)
    found = run(package, tmp_path, program)
    assert None not in json.loads(found["before"]).values()
    assert set(json.loads(found["digests"]).values()) == {None}


def test_modules_outside_the_package_have_no_digest(tmp_path, monkeypatch):
    assert sources.digest_of("__main__") is None
    assert sources.digest_of("fastpe.no_module") is None
    assert sources.digest_of(__name__) is None


WITHOUT = """
import sys
import numba
import numba.core.{0} as module
sys.modules["numba.core.{0}"] = None
from fastpe.kernels.compile import decorators
sys.modules["numba.core.{0}"] = module  # where Numba itself asks
"""


@pytest.mark.full("starts processes")
@pytest.mark.parametrize(
    ("gone", "problem"),
    [
        ("serialize", "this version of Numba keeps machine code differently"),
        ("compiler", "this version of Numba keeps machine code differently"),
        ("compiler_lock", "None"),
        ("typed_passes", "None"),
    ],
)
def test_a_numba_without_a_private_module_costs_the_cache_at_most(package, tmp_path, gone, problem):
    program = WITHOUT.format(gone) + PROGRAM
    first, second = (run(package, tmp_path / "cache", program) for _ in range(2))
    assert float(first["value"]) == float(second["value"]) == pytest.approx(0.8413447460685429)
    assert first["problem"].startswith(problem)
    assert ("compiled" in second) == (problem != "None")


@pytest.mark.full("starts processes")
def test_the_cache_belongs_to_the_user_alone(package, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    run(package, cache)
    (folder,) = cache.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755  # the user's own folder stays as it is
    folder.chmod(0o755)
    assert "not a folder that only this user can access" in run(package, cache)["problem"]


# Folders above it ----------------------------------------------------------------------------------------------------

OTHER = 54321  # a user's number


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens the cache below a folder, as the start of a process does; returns the folder and the problem."""

    def open_cache(root):
        monkeypatch.setenv("FASTPE_CACHE_DIR", str(root))
        monkeypatch.setattr(cache, "problem", None)
        return cache._open_folder(), cache.problem

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
        cache._check_path(tmp_path / "planted" / "cache")


@pytest.mark.skipif(os.name == "nt", reason="no permissions")
def test_a_umask_takes_nothing_from_the_user(tmp_path, opened, monkeypatch):
    before = os.umask(0o777)
    try:
        folder, problem = opened(tmp_path / "new" / "cache")
        assert problem is None
        save(folder, monkeypatch)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.full("starts processes")
def test_a_damaged_cache_is_compiled_anew(package, tmp_path):
    cache = tmp_path / "cache"
    first = run(package, cache)
    damaged = 0
    for path in cache.rglob("*.code"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        damaged += 1
    assert damaged
    again = run(package, cache)
    assert "compiled" in again
    assert again["value"] == first["value"]


@pytest.mark.full("starts processes")
def test_a_cache_that_cannot_be_written_is_done_without(package, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    result = run(package, blocked / "cache")
    assert "compiled" in result
    assert result["problem"] != "None"


def numbers(x):
    return x + 1


class Compiled:
    """A result that has been compiled, as far as it is asked."""

    library = types.SimpleNamespace(has_dynamic_globals=False)
    codegen = types.SimpleNamespace(magic_tuple=lambda: ("cpu",))
    target_context = types.SimpleNamespace(codegen=lambda: Compiled.codegen, refresh=lambda: None)


def save(folder, monkeypatch, digest="0" * 20, function=numbers, signature="int64"):
    monkeypatch.setattr(cache, "folder", folder)
    monkeypatch.setattr(cache, "_reduce", lambda compiled: (signature,))
    monkeypatch.setattr(cache, "_rebuild", lambda target, found: found)
    monkeypatch.setattr(sources, "digest_of", lambda module: digest)
    kept = cache.Cache(function, "numbers")
    kept.save_overload(signature, Compiled)
    return kept


def test_the_states_used_last_are_kept(tmp_path, monkeypatch):
    own = tmp_path / "thesis"  # not made by fastpe
    own.write_text("")
    for number in range(9):
        for signature in ("int64", "float64"):
            kept = save(tmp_path, monkeypatch, f"{number:020x}", signature=signature)
        for path in kept._files():
            used = os.stat(path).st_mtime_ns - (100 - number) * 10**9 if path.name.count(f"-{number:020x}-") else 0
            if used:
                os.utime(path, ns=(used, used))
        if number == 3:
            other = save(tmp_path, monkeypatch, "f" * 20, function=run)
    assert {int(digest, 16) for digest in kept._files().values()} == {5, 6, 7, 8}
    assert len(kept._files()) == 8
    assert len(other._files()) == 1
    assert own.exists()


def test_a_file_that_is_read_counts_as_used(tmp_path, monkeypatch):
    kept = save(tmp_path, monkeypatch)
    (path,) = kept._files()
    os.utime(path, (1.0, 1.0))
    assert kept.load_overload("int64", Compiled.target_context) == "int64"
    assert path.stat().st_mtime > 1.0
    assert kept.load_overload("float64", Compiled.target_context) is None


def test_types_of_one_name_are_told_apart(tmp_path, monkeypatch):
    class Named(str):
        def __eq__(self, other):
            return False

        __hash__ = str.__hash__

    kept = save(tmp_path, monkeypatch)
    assert kept.load_overload(Named("int64"), Compiled.target_context) is None


def test_flush_removes_the_files_of_one_function(tmp_path, monkeypatch):
    for signature in ("int64", "float64"):
        kept = save(tmp_path, monkeypatch, signature=signature)
    other = save(tmp_path, monkeypatch, function=run)
    kept.flush()
    assert kept.load_overload("int64", Compiled.target_context) is None
    assert {*tmp_path.iterdir()} == {*other._files()}


def test_functions_with_cells_are_not_kept(tmp_path, monkeypatch):
    step = 2

    def stepped(x):
        return x + step

    save(tmp_path, monkeypatch, function=stepped)
    assert not [*tmp_path.iterdir()]
