"""Files are written beside, synced and renamed; links, folders, pipes and devices lead nobody astray."""

import errno
import os
import secrets
import stat
from pathlib import Path

import numpy as np
import pytest
from interrupts import interrupted_everywhere

from fastpe.base import files
from fastpe.base.stored import DamagedFileError

needs_links = pytest.mark.skipif(os.name == "nt", reason="links and pipes")


@pytest.fixture
def victim(tmp_path_factory):
    """A file of the user's that a planted link leads to."""
    path = tmp_path_factory.mktemp("home") / "thesis.tex"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def draws(monkeypatch):
    """The names of temporary files, foreseen: "0000000000000000" and so on."""
    drawn = iter(range(1000))
    monkeypatch.setattr(secrets, "token_hex", lambda size: f"{next(drawn):0{2 * size}x}")
    return [f".fastpe-{number:016x}.tmp" for number in range(1000)]


PLACED = {
    "folder": lambda path, victim: path.mkdir(),
    "pipe": lambda path, victim: os.mkfifo(path),
    "file": lambda path, victim: path.write_bytes(b"placed"),
    "link to a file": lambda path, victim: path.symlink_to(victim),
    "link to nothing": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "link to itself": lambda path, victim: path.symlink_to(path),
    "link to a folder": lambda path, victim: path.symlink_to(path.parent),
    "device": lambda path, victim: path.symlink_to("/dev/null"),
}


def state(path):
    """What tells whether a path was touched; not when it was last read."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@needs_links
@pytest.mark.parametrize("plant", ["link to a file", "link to nothing", "folder", "pipe", "file"])
def test_what_was_planted_under_a_temporary_name_is_neither_followed_nor_touched(tmp_path, victim, draws, plant):
    planted = tmp_path / draws[0]
    PLACED[plant](planted, victim)
    before = state(planted)
    files.write_file(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert state(planted) == before
    assert names(tmp_path) == [draws[0], "x"]
    assert not victim.with_name("new").exists()


def test_where_no_name_is_free_the_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda size: "ab" * size)
    (tmp_path / ".fastpe-abababababababab.tmp").mkdir()
    with pytest.raises(FileExistsError, match="there is no free name") as caught:
        files.write_file(tmp_path / "x", b"new")
    assert caught.value.filename == str(tmp_path / "x")


@needs_links
@pytest.mark.parametrize("kind", ["link to a file", "link to nothing", "link to itself"])
def test_a_link_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_stays(tmp_path, victim, kind):
    path = tmp_path / "x"
    PLACED[kind](path, victim)
    files.write_file(path, b"new")
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"
    assert not victim.with_name("new").exists()


@needs_links
@pytest.mark.parametrize("kind", ["folder", "link to a folder", "pipe", "device"])
def test_what_is_no_file_is_neither_replaced_nor_read(tmp_path, victim, kind):
    """A pipe would have its reader wait for ever."""
    path = tmp_path / "x"
    PLACED[kind](path, victim)
    before = state(path)
    said = r"x is damaged: it is a (folder|pipe or a device), where a file was"
    for read in (files.read_file, files.read_json, files.TensorFile):
        with pytest.raises(DamagedFileError, match=said):
            read(path)
    with pytest.raises(OSError, match=r"it is a (folder|pipe or a device)") as caught:
        files.write_file(path, b"new")
    assert caught.value.filename == str(path)
    assert caught.value.errno == (errno.EISDIR if "folder" in kind else errno.EINVAL)
    assert state(path) == before
    assert names(tmp_path) == ["x"]


@needs_links
def test_a_link_is_followed_in_reading_and_a_loop_is_an_error_that_names_it(tmp_path, victim):
    path = tmp_path / "x"
    path.symlink_to(victim)
    assert files.read_file(path) == b"precious"
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(OSError, match="x") as caught:
        files.read_file(path)
    assert caught.value.errno == errno.ELOOP


# between open() and `with` nothing but the end of the object closes a file, and Python says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_step_leaves_the_old_file_or_the_new_one_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def check():
        assert names(tmp_path) == ["x"]
        assert path.read_bytes() in (b"old", b"new")

    assert interrupted_everywhere(lambda: files.write_file(path, b"new"), {files.__file__}, check) > 50


@pytest.mark.skipif(os.name == "nt", reason="has no such modes")
def test_who_may_read_a_file_stays_as_it_was(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    for mode in (0o600, 0o644, 0o660):
        path.chmod(mode)
        files.write_file(path, b"new")
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", mode)


def test_more_tensors_than_can_be_read_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_HEADER", 1000)
    with pytest.raises(ValueError, match=r"40 tensors have a header of \d+ bytes; at most 1000 can be read"):
        files.write_tensors(tmp_path / "x", {str(k): np.zeros(1) for k in range(40)}, {})
    assert names(tmp_path) == []


def test_no_more_is_read_than_is_allowed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert files.read_file(path, 5) == b"12345"
    assert files.read_file(path, 2**62) == b"12345"  # and no memory is taken for as much
    with pytest.raises(DamagedFileError, match="x is damaged: it is larger than 4 bytes"):
        files.read_file(path, 4)


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be opened")
def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(tmp_path, monkeypatch):
    done, sync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        status = os.fstat(descriptor)
        what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        done.append((what, status.st_ino, status.st_size if what == "file" else 0))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("renamed"), replace(*paths)))
    files.write_file(tmp_path / "x", b"content")
    inode = (tmp_path / "x").stat().st_ino
    assert done == [("file", inode, 7), "renamed", ("folder", tmp_path.stat().st_ino, 0)]


@needs_links
def test_leftovers_of_killed_processes_are_deleted_and_nothing_else(tmp_path, victim):
    mark = ".fastpe-0123456789abcdef.tmp"
    kept = {".model.safetensors.tmp", ".fastpe-0123456789abcdeg.tmp", "x.tmp", mark[:-5] + "e.tmp", mark[:-5] + "d.tmp"}
    for name in (".model.safetensors.tmp", ".fastpe-0123456789abcdeg.tmp", "x.tmp", mark):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / (mark[:-5] + "e.tmp")).mkdir()
    (tmp_path / (mark[:-5] + "d.tmp")).symlink_to(victim)
    files.remove_leftovers(tmp_path)
    assert set(names(tmp_path)) == kept


def test_files_are_as_private_as_the_user_has_them(tmp_path):
    old = os.umask(0o027)
    try:
        files.write_file(tmp_path / "x", b"")
    finally:
        os.umask(old)
    if os.name != "nt":
        assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_lock_that_nobody_has_any_more_is_open(tmp_path):
    """An interrupt may come after a folder was locked and before anybody could unlock it."""
    lock = files.lock_folder(tmp_path)
    assert os.name == "nt" or files.lock_folder(tmp_path) is None
    del lock
    assert files.lock_folder(tmp_path) is not None


@pytest.mark.skipif(os.name == "nt", reason="has no such locks")
def test_what_is_no_folder_is_not_locked(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        files.lock_folder(tmp_path / "x")


class Late(TimeoutError):
    """What a signal's handler raises, which is an OSError without a number."""


@pytest.mark.parametrize("where", ["os.fsync", "os.replace", "pathlib.Path.lstat"])
def test_what_a_handler_raises_passes_as_it_is(tmp_path, monkeypatch, where):
    def late(*_):
        raise Late("time is up")

    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(where, late)
    with pytest.raises(Late, match=r"^time is up$"):
        files.write_file(path, b"new")
    monkeypatch.undo()
    assert (names(tmp_path), path.read_bytes()) == (["x"], b"old")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="has no list of open files")
def test_interrupts_and_damaged_files_leave_no_file_open(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"0" * 100)
    before, kept = len(os.listdir("/proc/self/fd")), []
    interrupted_everywhere(lambda: files.read_file(path), {files.__file__}, lambda: None)
    for _ in range(20):
        with pytest.raises(DamagedFileError) as caught:
            files.TensorFile(path)
        kept.append(caught)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not os.path.exists("/proc/kallsyms"), reason="has no file of unknown size")
def test_a_file_that_does_not_know_its_size_is_not_cut():
    with pytest.raises(DamagedFileError, match="it is larger than 100 bytes"):
        files.read_file(Path("/proc/kallsyms"), 100)


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may list anything")
def test_a_folder_that_may_be_written_but_not_listed_is_written(tmp_path):
    tmp_path.chmod(0o333)
    try:
        files.write_file(tmp_path / "x", b"new")
        assert (tmp_path / "x").read_bytes() == b"new"
    finally:
        tmp_path.chmod(0o700)
