"""Encodings of one's own on the command line: every command takes a file, and every mistake costs one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import TINY, fastpe, refused
from own_encodings import filled_by, without, write

from fastpe.encodings import registry
from fastpe.encodings.own import template
from fastpe.training.config_file import RunError, read_config
from fastpe_cli import train

pytestmark = pytest.mark.usefixtures("folder")


def in_a_new_process(monkeypatch):
    """Nothing is registered any more."""
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})


# fastpe check --------------------------------------------------------------------------------------------------------


def test_the_template_passes_and_is_about_forty_lines(folder):
    printed = fastpe("check", "--template")
    assert printed.exit_code == 0
    assert printed.stdout == template()
    assert len(template().splitlines()) <= 50
    (folder / "mine.py").write_text(printed.stdout)
    result = fastpe("check", "./mine.py")
    assert result.exit_code == 0, result.output
    *lines, _, last = result.stdout.splitlines()
    assert last == "mine: all 16 checks passed"
    assert all(line.startswith("ok ") for line in lines)  # and no remark
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_what_fails_is_said_with_place_found_and_bound(folder):
    write(folder, ('dparams["slope"] -= ', 'dparams["slope"] += '), filled_by("out['bias'][...] = 0.5"))
    result = fastpe("check", "mine.py")
    assert result.exit_code == 1
    failed = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith("FAILED")}
    assert set(failed) == {"fill", "pull", "model"}
    assert "bias[0, 0] is 0.5, the reference -" in failed["fill"]
    assert "bound" in failed["fill"]
    assert "dslope[0] is " in failed["pull"]
    assert "differences of the reference give " in failed["pull"]
    found = json.loads(fastpe("check", "mine", "--json").stdout)
    assert not found["passed"]
    assert sorted({each["name"] for each in found["checks"] if not each["passed"]}) == ["fill", "model", "pull"]


def test_what_a_page_leaves_out_is_remarked(folder):
    text = template()
    write(folder, (text[: text.index("import numpy")], ""), ('    direction="no",\n', ""))
    result = fastpe("check", "mine.py")
    assert result.exit_code == 0
    assert "remark: the page (the docstring) does not mention anything, because it is empty" in result.stdout
    assert "remark: ENCODING has no direction; a tested model without a mask does not" in result.stdout


def test_check_is_of_one_encoding(folder):
    assert "FILE or KEY is missing" in refused(2, "check")
    assert "FILE or KEY must be a single encoding" in refused(2, "check", "alibi+rope")
    assert "'alibi' is not one of" in refused(2, "check", "--template", "alibi")
    assert "encoding 'alibbi' is unknown; did you mean 'alibi'" in refused(2, "check", "alibbi")


# Other commands ------------------------------------------------------------------------------------------------------


def test_a_run_that_starts_from_one_with_an_own_encoding_needs_its_file(folder, monkeypatch):
    write(folder)
    assert fastpe("train", "--encoding", "./mine.py", "--out", "run", *TINY).exit_code == 0
    in_a_new_process(monkeypatch)
    line = refused(2, "train", "--from", "run", "--out", "next")
    assert "run has an encoding 'mine' that is not fastpe's, from a file called 'mine.py': name that file" in line
    assert not (folder / "next").exists()
    own = ["--encoding", "./mine.py", "--samples", "20", "--epochs", "1"]
    found = fastpe("train", "--from", "run", *own, "--out", "next")
    assert found.exit_code == 0, found.output


def test_a_run_needs_the_same_file_of_its_encoding_again(folder, monkeypatch):
    write(folder)
    assert fastpe("train", "--encoding", "./mine.py+alibi", "--out", "run", *TINY).exit_code == 0
    record = json.loads((folder / "run" / "config.json").read_text())
    assert record["encodings"] == {"mine": {"file": "mine.py", "sha256": registry.ENCODINGS.ways()["mine"]["sha256"]}}
    assert record["config"]["encoding"] == "mine+alibi"
    assert fastpe("evaluate", "run", "--encoding", "./mine.py+alibi").exit_code == 0
    assert "has the encoding 'mine+alibi', not 'mine'" in refused(2, "evaluate", "run", "--encoding", "mine.py")
    assert fastpe("train", "--resume", "--out", "run", "--encoding", "./mine.py+alibi").exit_code == 0

    in_a_new_process(monkeypatch)
    unnamed = "run has an encoding 'mine' that is not fastpe's, from a file called 'mine.py': name that file, by --enc"
    assert unnamed in refused(2, "evaluate", "run")
    assert unnamed in refused(2, "train", "--resume", "--out", "run")

    write(folder, ("0.5", "0.25"))
    changed = "run was made with another encoding 'mine': the SHA-256 of its file was "
    assert changed in refused(2, "evaluate", "run", "--encoding", "mine.py+alibi")
    assert changed in refused(2, "train", "--resume", "--out", "run", "--encoding", "mine.py+alibi")
    with pytest.raises(RunError, match="made with another encoding"):
        read_config("run")


def test_pages_lists_and_pictures(folder):
    write(folder)
    page = fastpe("encodings", "./mine.py")
    assert page.exit_code == 0
    assert page.stdout.startswith("mine\n\nRoot penalty: a penalty by")
    assert any(line.split()[:1] == ["mine"] for line in fastpe("encodings").stdout.splitlines())
    shown = fastpe("show", "./mine.py", "--json")
    assert shown.exit_code == 0
    assert fastpe("show", "./mine.py+alibi").exit_code == 0
    assert fastpe("doctor", "--only", "pull mine").exit_code == 0


# Mistakes ------------------------------------------------------------------------------------------------------------

COMMANDS = (
    ("train", "--encoding", "{}", "--out", "run", *TINY),
    ("show", "{}", "--out", "picture.png"),
    ("encodings", "{}"),
    ("check", "{}"),
    ("evaluate", "run", "--encoding", "{}"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_file_that_is_no_encoding_costs_one_line(folder, command):
    (folder / "syntax.py").write_text("\nx = (")
    (folder / "raises.py").write_text("\n\nraise RuntimeError('no luck')")
    (folder / "folder.py").mkdir()
    before = sorted(folder.iterdir())
    for name, message in (
        ("syntax.py", "syntax.py, line 2: this is not Python: '(' was never closed"),
        ("raises.py", "raises.py, line 3: RuntimeError: no luck"),
        ("folder.py", "folder.py cannot be read: Is a directory"),
        ("./gone.py", "./gone.py cannot be read: No such file or directory"),
        ("./a+b/mine.py", "./a+b/mine.py: a path with '+' cannot be part of a sum"),
    ):
        assert message in refused(2, *(word.format(name) for word in command))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('{"bias": -', '{"bias": np.ones(3) - '), "mine.py, line 34: ValueError: operands could not be broadcast"),
        (without("pull"), "'mine' learns 'slope', but mine.py does not define pull"),
    ],
)
def test_a_breach_stops_a_training_before_it_begins(folder, change, message):
    write(folder, change)
    assert message in refused(2, "train", "--encoding", "mine.py", "--out", "run", *TINY)
    assert message.partition(": ")[2] in fastpe("check", "mine.py").output or "pull" in message


@pytest.mark.parametrize(
    "change",
    [
        ('{"bias": -', '{"bias": np.nan * -'),
        ('{"bias": -', '{"bias": "a" if 1 else -'),
        ('{"bias": -', "{3: 0, None: 1} if 1 else {3: "),
        ('{"slope": rng.uniform(spec.heads)}', '{"slope": None}'),
        ("    return {", "    raise SystemExit(3)\n    return {"),
        ("ulp=4.0", "ulp=lambda *arguments, **options: 'a'"),
    ],
)
def test_whatever_functions_give_check_comes_to_its_end(folder, change):
    write(folder, change, ('    direction="no",\n', "    direction='unknown',\n"))
    result = fastpe("check", "mine.py", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    notes = [each["note"] for each in found["checks"] if not each["passed"]]
    assert notes
    assert all("mine.py" in note or note.startswith("slot 'bias' is ") for note in notes), notes


def test_a_broken_package_leaves_the_list_whole(folder, monkeypatch):
    about = folder / "pkg_broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg-broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fastpe.encodings]\nbroken = pkg_broken\n")
    monkeypatch.syspath_prepend(folder)
    vars(registry.ENCODINGS).pop("_offered", None)
    result = fastpe("encodings")
    assert result.exit_code == 0
    assert "fastpe: encoding 'broken' of pkg-broken (pkg_broken) cannot be used: ModuleNotFoundError" in result.stderr
    assert "alibi" in result.stdout
    assert "broken" not in result.stdout


@pytest.mark.full("takes seconds")
def test_a_file_that_cannot_be_filled_leaves_lists_whole(folder):
    registry.register(write(folder, ("spec.length, spec.length)", "spec.length, 3 * spec.length)")))
    for flags in ([], ["--by", "needs"], ["--by", "year"], ["--by", "place"], ["--json"]):
        result = fastpe("encodings", *flags)
        assert result.exit_code == 0, result.output
        assert "mine" in result.stdout
    assert json.loads(fastpe("encodings", "mine", "--json").stdout)["needs"] == ["training"]


def test_the_command_that_goes_on_names_files_but_no_module(folder, monkeypatch):
    key = registry.register(write(folder))
    monkeypatch.setitem(
        registry.ENCODINGS._registered, "offered", replace(registry.ENCODINGS._registered[key], way="package.offered")
    )
    said = train._resuming(Path("my runs/one"), "mine+alibi", "running_sum")
    assert said == f"fastpe train --resume --out 'my runs/one' --encoding {folder / 'mine.py'}+alibi"
    assert train._resuming(Path("run"), "offered", "running_sum") == "fastpe train --resume --out run"
