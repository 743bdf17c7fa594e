"""Names and messages that come from files, through everything that a study writes; the scripts of pages."""

import base64
import csv
import io
import json
import re

import pytest
from small_study import done

from fastpe.encodings import catalogue
from fastpe.experiments import study_folder, tables_report, tuning
from fastpe.experiments.existing_runs import report_study
from fastpe.experiments.study import Study
from fastpe.experiments.study_folder import FinishedRun
from fastpe.paper_claims import tables
from fastpe.pictures.atlas.page import atlas

ENCODING = '=HYPERLINK("http://x")|<img src=x>'
TASK = "@task|</script><b>[l](javascript:x)"
REASON = "-2+3\x1b[2J\u2028\u202e\n|<i>"
SETTINGS = {"train_length": 4, "width": 8, "hidden": 8, "samples": 16, "epochs": 1, "batch": 8}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Text by name of the files of a study with hostile labels, of which one run failed; its results are made up."""
    out = tmp_path_factory.mktemp("study")
    study = Study(
        {ENCODING: {"encoding": "alibi"}, "nope": {}}, {TASK: {"task": "reverse"}}, seeds=2, settings=SETTINGS,
        choose={"lr": [0.1, 0.2]},
    )  # fmt: skip
    right = done({n: {"exact": 0.5} for n in ("1-4", "5-8", "9-12")})
    runs = {
        key: FinishedRun({"failed": REASON} if key.seed and key.encoding == ENCODING else right, None, "x", "cpu")
        for key in study.run_keys()
    }
    validated = {
        trial: {"failed": REASON} if trial.candidate else {"validation": {"exact": 0.5, "loss": 1.0}}
        for trial in study.trials()
    }
    study_folder.write_report(study, out, runs, tuning.choose(study, validated))
    (out / "study.toml").write_text(study.to_toml(), "utf-8")
    return {path.name: path.read_text("utf-8") for path in out.iterdir() if path.suffix != ".pdf"}


@pytest.mark.parametrize("name", ["results.csv", "choices.csv"])
def test_no_cell_of_a_csv_is_a_formula(files, name):
    rows = list(csv.reader(io.StringIO(files[name])))
    assert {len(row) for row in rows} == {len(rows[0])}
    cells = {cell for row in rows for cell in row}
    assert {f"'{ENCODING}", f"'{TASK}", r"'-2+3\x1b[2J \u202e |<i>"} <= cells
    assert not any(cell.startswith(tuple("=+-@\t\r")) for cell in cells)


def test_the_table_in_a_page_has_a_line_for_each_row(files):
    page = files["report.html"]
    table = base64.b64decode(re.search(r'href="data:text/csv;base64,(.*?)"', page)[1]).decode()
    assert {line.count(",") for line in table.strip().split("\n")} == {8}
    assert not any(line.startswith(tuple("=+-@")) for line in table.split("\n"))


def test_no_label_is_markup(files):
    for name, text in files.items():
        if name.endswith((".html", ".svg")):
            assert not re.search(r"<img|<b>|<i>|javascript:x\"", text), name
    words = files["results.md"].split("## The study")[0]
    assert not re.search(r"(?<!\\)<(img|/script|b>|i>)|\]\(", words)
    for table in re.findall(r"(?:^\|.*\n)+", words, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_no_file_holds_control_characters(files):
    for name, text in files.items():
        assert all(c.isprintable() or c == "\n" for c in text), name
    assert Study.from_toml(files["study.toml"]).encodings[ENCODING]["encoding"] == "alibi"


@pytest.mark.parametrize("label", ["a\nb", "a\x1b[2Jb", "a\x9bb", "a\u2028b", "a\u202eb", "a\tb", "a\x7fb"])
@pytest.mark.parametrize("of", ["encodings", "tasks"])
def test_a_label_with_control_characters_is_refused(label, of):
    own = {label: {"encoding": "alibi"}}, ["reverse"]
    own = own if of == "encodings" else (["alibi"], {label: {"task": "reverse"}})
    with pytest.raises(ValueError, match=f"^{of} must have names of one line without control characters, not") as error:
        Study(*own, settings=SETTINGS)
    assert str(error.value).isprintable()
    written = f"[encoding.{json.dumps(label)}]\nencoding = 'alibi'\n[task.reverse]\n".replace("\x7f", "\\u007f")
    with pytest.raises(ValueError, match="must have names of one line"):
        Study.from_toml(written)


def test_why_a_run_failed_is_read_as_one_printable_line(tmp_path):
    study = Study(["nope"], ["reverse"], seeds=1, settings=SETTINGS)
    (tmp_path / "study.toml").write_text(study.to_toml())
    key = study_folder.config_file.digest(study.config(next(study.run_keys())).to_dict())
    (tmp_path / "failed.json").write_text(json.dumps({key: REASON + "x" * 1000}))
    (row,) = report_study(tmp_path).rows
    assert row["failed"].isprintable()
    assert len(row["failed"]) < 600


def asked(page):
    """The ids that a page's scripts ask for."""
    return set(re.findall(r"""getElementById\(["'](\w+)["']\)""", page))


def test_every_id_that_a_script_asks_for_is_in_its_page(files, monkeypatch):
    monkeypatch.setattr(tables, "CELLS", tables.CELLS[:1])
    pages = {
        "a study": files["report.html"],
        "tables": tables_report.files_of(tables.judge())["tables.html"].decode(),
        "the atlas": atlas([catalogue.entry("nope")]),
    }
    for name, page in pages.items():
        assert asked(page) <= set(re.findall(r'\bid="(\w+)"', page)), name
    assert {"choose", "count"} <= asked(pages["the atlas"])
