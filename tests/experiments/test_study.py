"""Studies: what is one, how it is made and made again, by shards too; what its files say."""

import csv
import html
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import FILES, SMALL, STUDY, done

from fastpe.experiments import results, study_answer, study_folder, study_report
from fastpe.experiments.compare import compare
from fastpe.experiments.existing_runs import load_study, merge, report_runs, report_study
from fastpe.experiments.study import RunKey, Study, varied
from fastpe.training.config_file import RunError

BENCH = Path(__file__).resolve().parents[2] / "bench" / "results" / "compare.toml"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small study, made."""
    out = tmp_path_factory.mktemp("studies") / "study"
    return compare(STUDY, out=out, workers=1)


def test_a_study_is_read_as_it_was_written():
    whole = Study(
        {"steep": {"encoding": "alibi", "options": {"slope": 0.5}, "heads": 2}, "nope": {}},
        {"short": {"task": "reverse", "options": {"symbols": 3}, "train_length": 6, "validation": 0, "tied": False}},
        seeds=3, baseline="steep", settings={**SMALL, "lr": 1e-5, "test_lengths": [4, "5-8"]}, margin=0.1,
        threshold=0.5,
    )  # fmt: skip
    assert Study.from_toml(whole.to_toml()) == whole
    config = whole.config(RunKey("short", "steep", 2))
    assert (config.encoding, config.options, config.heads, config.seed) == ("alibi", {"slope": 0.5}, 2, 2)
    assert Study.read(BENCH) == Study.from_toml(Study.read(BENCH).to_toml())
    assert (config.task_options, config.train_length, config.test_lengths) == ({"symbols": 3}, 6, (4, "5-8"))


def test_everything_is_paired():
    """But for the encoding all settings of a seed are the same."""
    for task in STUDY.tasks:
        for seed in range(2):
            own = [STUDY.config(RunKey(task, name, seed)).to_dict() for name in STUDY.encodings]
            for each in own:
                del each["encoding"], each["options"]
            assert own[0] == own[1] == own[2]
            assert own[0]["seed"] == seed


def test_tokens_are_causal_unless_said_otherwise():
    assert STUDY.config(RunKey("reverse", "rope", 0)).causal
    assert not STUDY.config(RunKey("running_sum", "rope", 0)).causal
    assert not Study(["rope"], ["reverse"], settings={"causal": False}).config(RunKey("reverse", "rope", 0)).causal


def test_settings_are_varied():
    found = varied(STUDY, {"heads": [1, 2], "lr": [0.1]})
    assert list(found.encodings)[:2] == ["alibi heads=1 lr=0.1", "alibi heads=2 lr=0.1"]
    assert found.baseline == "nope heads=1 lr=0.1"
    assert found.config(RunKey("reverse", "rope heads=2 lr=0.1", 0)).heads == 2


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (([], ["reverse"]), {}, "encodings must have at least one name"),
        ((["nope"], []), {}, "tasks must have at least one name"),
        ((["nope", "nope"], ["reverse"]), {}, "encodings must be distinct"),
        ((["nopee"], ["reverse"]), {}, "encoding 'nopee' is unknown; did you mean 'nope'"),
        ((["nope"], ["revers"]), {}, "task 'revers' is unknown; did you mean 'reverse'"),
        ((["nope"], ["reverse"]), {"seeds": 0}, "seeds must be at least 1, not 0"),
        ((["nope"], ["reverse"]), {"baseline": "rope"}, "baseline must be one of the encodings, not 'rope'"),
        ((["nope"], ["reverse"]), {"settings": {"widht": 3}}, "setting 'widht' is unknown; did you mean 'width'"),
        ((["nope"], ["reverse"]), {"settings": {"width": 0}}, "nope on reverse: width must be at least 1, not 0"),
        ((["nope"], ["reverse"]), {"settings": {"seed": 1}}, "setting 'seed' is unknown"),
        (
            (["nope"], ["reverse"]),
            {"preset": "gpt"},
            "preset must be recipe or li2025 or lacoco or nanogpt-cpu or nanochat-cpu, not 'gpt'",
        ),
        ((["nope"], ["reverse"]), {"margin": 0}, "margin must be above 0, not 0"),
        ((["nope"], ["reverse"]), {"threshold": 2}, r"threshold must lie in \(0, 1\], not 2"),
        (("nope", ["reverse"]), {}, "encodings must be a list of names, as in .*not 'nope'"),
    ],
)
def test_what_is_no_study(arguments, named, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Study(*arguments, **named)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = ", "it is not TOML"),
        ("seed = 3", "the study contains the unknown name 'seed'; did you mean 'seeds'"),
        ("seeds = 3", r"the study lacks encodings: add a table \[encoding.NAME\]"),
    ],
)
def test_what_is_no_file_of_a_study(text, message):
    with pytest.raises(ValueError, match=message):
        Study.from_toml(text)


def test_a_study_of_too_many_encodings_is_refused():
    encodings = {f"nope {n}": {"encoding": "nope"} for n in range(10_001)}
    with pytest.raises(ValueError, match="at most 10000 entries, not 10001"):
        Study(encodings, ["reverse"], seeds=1)


@pytest.mark.full("starts processes")
def test_a_study_leaves_its_files(made):
    figures = {f"task-{task}.{kind}" for task in ("reverse", "running_sum") for kind in ("svg", "pdf")}
    assert {*FILES, *figures, "failed.json", "runs"} == {path.name for path in made.out.iterdir()}
    table = list(csv.DictReader(io.StringIO((made.out / "results.csv").read_text())))
    runs = {(row["task"], row["encoding"], row["seed"]) for row in table}
    assert len(runs) == 12
    facts = json.loads((made.out / "results.json").read_text())
    assert facts["cells"] == json.loads(json.dumps(made.summary["cells"]))
    for row in table:
        cell = RunKey(row["task"], row["encoding"], int(row["seed"]))
        (own,) = (made.out / "runs").glob(f"{cell.task}-{cell.encoding}-seed{cell.seed}-{row['identity']}")
        value = json.loads((own / "result.json").read_text())["test"][row["length"]][row["metric"]]
        assert row["value"] == ("" if value is None else repr(value))
    assert "| alibi |" in (made.out / "results.md").read_text()


@pytest.mark.full("starts processes")
def test_a_study_is_made_once(made):
    before = {path: path.stat().st_mtime_ns for path in (made.out / "runs").rglob("*.safetensors")}
    events = []
    again = compare(STUDY, out=made.out, workers=1, progress=events.append)
    assert (load_study(made.out).summary, load_study(made.out).rows) == (made.summary, made.rows)
    assert (again.summary, again.rows) == (made.summary, made.rows)
    assert next(each for each in events if hasattr(each, "reused")).reused == 12
    assert {path: path.stat().st_mtime_ns for path in (made.out / "runs").rglob("*.safetensors")} == before


@pytest.mark.full("needs a study")
def test_the_page_is_one_file_that_needs_no_other(made):
    page = (made.out / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    for mark in ("http:", "https:", "src=", "@import", "url("):
        assert mark not in page
    for name in (*STUDY.encodings, *STUDY.tasks):
        assert name in page
    assert html.escape(study_answer.answer(STUDY, made.summary)) in page


@pytest.mark.full("takes seconds")
def test_shards_make_the_same_files_byte_for_byte(made, tmp_path):
    for number in (1, 2):
        assert compare(STUDY, out=tmp_path / f"part{number}", workers=1, shard=(number, 2)) is None
    with pytest.raises(RunError, match="lacks 6 of 12 runs"):
        merge([tmp_path / "part1"], tmp_path / "half")
    found = merge([tmp_path / "part1", tmp_path / "part2"], tmp_path / "whole")
    assert json.dumps(found.summary) == json.dumps(made.summary)
    again = {name: (tmp_path / "whole" / name).read_bytes() for name in FILES}
    merge([tmp_path / "part2", tmp_path / "part1"], tmp_path / "other")
    assert {name: (tmp_path / "other" / name).read_bytes() for name in FILES} == again
    assert (tmp_path / "whole" / "results.md").read_bytes() == (made.out / "results.md").read_bytes()


@pytest.mark.full("starts processes")
def test_a_run_that_fails_is_counted_and_the_rest_goes_on(no_pdf, tmp_path):
    """One seed of one encoding diverges."""
    study = Study({"nope": {}, "wild": {"encoding": "nope", "lr": 1e30}}, ["running_sum"], seeds=2, settings=SMALL)
    found = compare(study, out=tmp_path / "out", workers=1)
    assert found.summary["failed"] == 2
    assert [each["verdict"] for each in found.summary["comparisons"]] == ["not compared"] * 3
    assert any("2 of 4 runs failed" in line for line in study_report.verdict(study, found.summary))
    assert sum(bool(row.get("failed")) for row in found.rows) == 2
    assert "2 failed" in (tmp_path / "out" / "results.md").read_text()
    before = {name: (tmp_path / "out" / name).read_bytes() for name in FILES}
    assert json.dumps(report_study(tmp_path / "out").summary) == json.dumps(found.summary)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == before
    merged = merge([tmp_path / "out"], tmp_path / "merged")
    assert json.dumps(merged.summary) == json.dumps(found.summary)


@pytest.mark.full("starts processes")
def test_the_same_encoding_under_two_names_finds_nothing(no_pdf, tmp_path):
    study = Study({"nope": {}, "again": {"encoding": "nope"}}, ["reverse"], seeds=6, settings=SMALL)
    found = compare(study, out=tmp_path / "out", workers=1)
    assert {each["verdict"] for each in found.summary["comparisons"]} == {"inconclusive"}
    assert all(each["difference"]["mean"] == 0 for each in found.summary["comparisons"])
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 6  # they are the same runs


@pytest.mark.full("needs a study")
def test_seeds_that_found_the_same_bits_are_told(made):
    outcomes = {cell: done({"4": {"exact": 0.5}}) for cell in STUDY.run_keys()}
    assert len(results.same_bits(outcomes)) == 6
    assert results.same_bits(outcomes)[0] == "alibi on reverse: seeds 0 and 1 gave bitwise equal results"
    assert made.summary["same_bits"] == []


@pytest.mark.full("needs a study")
def test_folders_that_hold_something_else_are_refused(made, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(RunError, match=r"is not a study folder: it contains files but no study\.toml"):
        compare(STUDY, out=tmp_path / "full")
    other = Study(["nope"], ["reverse"], seeds=1, settings=SMALL)
    with pytest.raises(RunError, match="contains another study"):
        compare(other, out=made.out)
    copy = shutil.copytree(made.out, tmp_path / "copy")
    (copy / "study.toml").write_text("seeds = 'x'")
    with pytest.raises(RunError, match="was edited and is not a valid study"):
        compare(STUDY, out=copy)
    with pytest.raises(RunError, match=r"is not a study folder: it has no study\.toml"):
        report_study(tmp_path / "full")
    with pytest.raises(ValueError, match="out is missing: it must be a folder"):
        compare(STUDY)
    assert study_folder.FILE == "study.toml"


@pytest.mark.full("needs a study")
def test_studies_share_the_runs_of_one_folder(made, tmp_path):
    events = []
    half = replace(STUDY, tasks={"reverse": {}})
    compare(half, out=tmp_path / "half", runs=made.out / "runs", progress=events.append)
    started = next(each for each in events if hasattr(each, "reused"))
    assert (started.runs, started.reused) == (6, 6)
    assert not (tmp_path / "half" / "runs").exists()
    again = report_study(tmp_path / "half", made.out / "runs")
    assert again.summary["cells"] == [each for each in made.summary["cells"] if each["task"] == "reverse"]
    with pytest.raises(RunError, match="lacks 6 of 6 runs"):
        report_study(tmp_path / "half")


@pytest.mark.full("takes seconds")
def test_single_runs_make_a_report(made, tmp_path):
    runs = sorted((made.out / "runs").iterdir())
    found = report_runs(runs, tmp_path / "report")
    assert (set(found.study.encodings), set(found.study.tasks)) == (set(STUDY.encodings), set(STUDY.tasks))
    assert (found.study.count, found.study.baseline) == (2, "nope")
    key = lambda cell: (cell["task"], cell["encoding"], cell["length"])  # noqa: E731 - of both sorts
    assert sorted(found.summary["cells"], key=key) == sorted(made.summary["cells"], key=key)
    assert (tmp_path / "report" / "report.html").is_file()
    with pytest.raises(RunError, match=r"the folders contain no run of .* with seed ."):
        report_runs(runs[1:], tmp_path / "less")
    with pytest.raises(RunError, match="are the same run"):
        report_runs([*runs, runs[0]], tmp_path / "twice")
    with pytest.raises(RunError, match=r"is not a run folder: it contains files but no config\.json"):
        report_runs([tmp_path], tmp_path / "none")
    assert {path.name for path in tmp_path.iterdir()} == {"report"}


@pytest.mark.full("starts processes")
def test_runs_that_differ_in_settings_are_told_apart(no_pdf, tmp_path):
    steep, two = {"encoding": "alibi", "options": {"slope": 0.5}}, {"encoding": "alibi", "heads": 2}
    tasks = {"reverse": {"train_length": 6}, "running_sum": {}}
    study = Study({"alibi": {}, "steep": steep, "two": two}, tasks, seeds=[3, 5], settings=SMALL)
    made = compare(study, out=tmp_path / "out", workers=1)
    found = report_runs(sorted((tmp_path / "out" / "runs").iterdir()), tmp_path / "report")
    assert len(found.study.encodings) == 3
    assert found.study.each_seed == (3, 5)
    assert any("slope=0.5" in label for label in found.study.encodings)
    assert any("heads=2" in label for label in found.study.encodings)
    values = lambda one: sorted(str(cell["values"]) for cell in one.summary["cells"])  # noqa: E731 - of both
    assert values(found) == values(made)


@pytest.mark.full("takes seconds")
def test_cells_of_several_cpus_are_marked(made, tmp_path):
    result = done({n: {"exact": 0.5, "mse": 0.5} for n in ("4", "8", "16")})
    cpus = {cell: f"cpu {cell.seed if cell.encoding == 'rope' else 0}" for cell in STUDY.run_keys()}
    known = {cell: study_folder.FinishedRun(result, None, "x", cpu) for cell, cpu in cpus.items()}
    found = study_folder.write_report(STUDY, tmp_path, known)
    assert {cell["encoding"] for cell in found.summary["cells"] if cell["mixed"]} == {"rope"}
    said = (tmp_path / "results.md").read_text().partition("## Results on")[2].split("## Comparisons with the")[0]
    told = "The runs were made on several CPUs, which may round differently: cpu 0, cpu 1"
    assert all(told in (tmp_path / name).read_text() for name in ("results.md", "report.html"))
    assert all(("‡" in line) == line.startswith("| rope") for line in said.splitlines()
               if line.startswith(("| rope |", "| alibi |", "| nope |")))  # fmt: skip


@pytest.mark.full("takes seconds")
def test_the_page_of_2000_runs_stays_small(no_pdf):
    """Simulated results of 20 encodings, 10 tasks and 10 seeds."""
    names = ["nope", "alibi", "rope", "t5", "fire"] + [f"alibi{k}" for k in range(15)]
    encodings = {name: {"encoding": "alibi" if name.startswith("alibi") else name} for name in names}
    tasks = {f"reverse{k}": {"task": "reverse"} for k in range(10)}
    study = Study(encodings, tasks, seeds=10, settings=SMALL)
    rng = np.random.default_rng(0)
    lengths = results.lengths_of(study, "reverse0")
    outcomes = {
        cell: done({n: {"exact": float(rng.random()), "token": 0.5, "loss": 1.0, "sequences": 20} for n in lengths})
        for cell in study.run_keys()
    }
    summary = results.summary(study, outcomes)
    assert len(summary["comparisons"]) == 19 * 10 * 3
    table = results.rows(study, outcomes, {})
    losses = {cell: [1.0, 0.5, 0.2] for cell in study.run_keys()}
    files = study_report.files_of(study, {**summary, "cpus": ["x"]}, table, losses)
    assert len(files["report.html"]) < 1_250_000


def test_numbers_of_numpy_are_written_as_pythons():
    study = Study(
        {"alibi": {"options": {"slope": np.float64(0.5)}, "hidden": np.int64(16)}, "nope": {}}, ["reverse"],
        seeds=[np.int64(2), np.uint64(5)], margin=np.float32(0.5), threshold=np.float64(0.5),
        settings={"train_length": np.int64(8), "test_lengths": np.array([4, 8]), "causal": np.True_, "width": 8},
        choose={"lr": [np.float32(0.5), np.float64(0.25)], "layers": [np.int8(1), np.array(2)]},
    )  # fmt: skip
    assert Study.from_toml(study.to_toml()) == study
    assert study.settings == {"train_length": 8, "test_lengths": [4, 8], "causal": True, "width": 8}
    with pytest.raises(TypeError, match="lr must be a number"):
        Study(["nope"], ["reverse"], settings={"lr": np.timedelta64(1, "ns")})
