"""`fastpe atlas`: where the page goes, what it is of, and mistakes in one line."""

import os

from command_line import fastpe, refused
from own_encodings import write


def test_it_writes_a_page_of_some_and_replaces_a_file(folder):
    (folder / "atlas.html").write_text("before")
    result = fastpe("atlas", "--out", "atlas.html", "--encoding", "t5", "--encoding", "nope", "--encoding", "t5")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert result.stderr.splitlines()[-1] == "written: atlas.html"
    text = (folder / "atlas.html").read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<article") == 2
    assert text.index('id="nope"') < text.index('id="t5"')
    assert os.listdir(folder) == ["atlas.html"]


def test_it_takes_a_file_of_ones_own(folder):
    write(folder)
    result = fastpe("atlas", "--out", "mine.html", "--encoding", "./mine.py")
    assert result.exit_code == 0, result.output
    assert 'id="mine"' in (folder / "mine.html").read_text()


def test_mistakes_are_one_line_and_leave_everything_as_it_is(folder):
    assert "Missing option '--out'" in refused(2, "atlas")
    assert "--out must end in .html, not 'atlas.md'" in refused(2, "atlas", "--out", "atlas.md")
    assert "--out: folder none does not exist" in refused(2, "atlas", "--out", "none/atlas.html")
    (folder / "there.html").mkdir()
    assert "--out: there.html cannot be written: it is a folder" in refused(2, "atlas", "--out", "there.html")
    os.mkfifo(folder / "pipe.html")
    assert "--out: pipe.html cannot be written: it is a pipe" in refused(2, "atlas", "--out", "pipe.html")
    file = folder / "kept.html"
    file.write_text("kept")
    for name, words in (("ropee", "did you mean 'rope'"), ("rope+alibi", "--encoding must be a single encoding")):
        assert words in refused(2, "atlas", "--out", file, "--encoding", name)
    assert file.read_text() == "kept"
