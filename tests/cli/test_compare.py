"""`fastpe compare`, `merge` and `report`: what they print, and what a mistake costs."""

import json

import pytest
from command_line import fastpe, refused

from fastpe.experiments.study import Study

pytestmark = pytest.mark.usefixtures("folder")

SIZES = {"width": 8, "hidden": 8, "layers": 1, "train_length": 4, "samples": 16, "epochs": 1, "batch": 8}
SMALL = [word for name, size in SIZES.items() for word in ("--set", f"{name}={size}")]
SMALL += ["--set", "test_sequences=10", "--seeds", "2", "--workers", "1"]
STUDY = ["compare", "alibi", "nope", "--task", "reverse", *SMALL]


@pytest.mark.full("starts processes")
def test_a_study_says_what_it_found_and_where(folder):
    found = fastpe(*STUDY, "--out", "study", "--test-lengths", "4,5-8")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("On reverse, up to the training length (4), ")
    said = " ".join(found.stdout.split())
    assert "Of 2 comparisons with nope over 2 seeds: 0 better, 0 worse, 0 equivalent, 2 inconclusive." in said
    few = "With 2 seeds no difference can be called significant: at least 6 seeds are needed for 1 comparison"
    assert few in said
    assert few in found.stderr.partition("\n\n")[0]
    assert found.stderr.splitlines()[-1].startswith("written in study: report.html, results.csv")
    again = fastpe("report", "study", "--json")
    cells = json.loads(again.stdout)["cells"]
    assert [(cell["encoding"], cell["length"]) for cell in cells] == [
        ("alibi", "4"), ("alibi", "5-8"), ("nope", "4"), ("nope", "5-8"),
    ]  # fmt: skip
    repeated = fastpe("compare", "--study", "study/study.toml", "--out", "study", "--workers", "1", "--json")
    assert json.loads(repeated.stdout)["cells"] == cells
    assert "4 of them already finished" in repeated.stderr
    judged = fastpe("report", "study", "--margin", "0.5", "--json")
    assert all(each["within"] is not None for each in json.loads(judged.stdout)["comparisons"] if "within" in each)
    assert "margin = 0.5\n" in (folder / "study" / "study.toml").read_text()
    elsewhere = fastpe("report", "study", "--runs", "nowhere", "--margin", "0.1")
    assert elsewhere.exit_code == 2
    assert "there is no folder nowhere" in elsewhere.stderr
    assert "margin = 0.5\n" in (folder / "study" / "study.toml").read_text()
    assert fastpe("compare", "--study", "study/study.toml", "--out", "study", "--workers", "1").exit_code == 0


@pytest.mark.full("starts processes")
def test_shards_are_merged(folder):
    for number in (1, 2):
        found = fastpe(*STUDY, "--shard", f"{number}/2", "--out", f"part{number}")
        assert found.exit_code == 0, found.output
        assert f"shard {number}/2 is done" in found.stderr
        assert found.stdout == ""
    assert "lacks 2 of 4 runs" in refused(2, "merge", "part1", "--out", "half")
    found = fastpe("merge", "part1", "part2", "--out", "whole")
    assert found.exit_code == 0, found.output
    assert (folder / "whole" / "report.html").is_file()


def test_a_dry_run_makes_nothing(folder):
    found = fastpe(*STUDY, "--dry-run", "--json")
    assert json.loads(found.stdout)["runs"] == 4
    assert "nope on reverse: " in found.stderr
    assert fastpe(*STUDY, "--dry-run").stdout.startswith("runs   4\nFLOPs  ")
    assert list(folder.iterdir()) == []


@pytest.mark.full("starts processes")
def test_settings_are_varied(folder):
    found = fastpe(*STUDY, "--vary", "heads=1,2", "--margin", "0.5", "--out", "study", "--json")
    assert found.exit_code == 0, found.output
    assert {cell["encoding"] for cell in json.loads(found.stdout)["cells"]} == {
        "alibi heads=1", "alibi heads=2", "nope heads=1", "nope heads=2",
    }  # fmt: skip


CHOOSE = ["--choose", "lr=1e-3,1e-2", "--choose", "heads=1,2", "--choose-seeds", "1"]


@pytest.mark.full("starts processes")
def test_settings_are_chosen(folder):
    found = fastpe(*STUDY, *CHOOSE, "--out", "study")
    assert found.exit_code == 0, found.output
    said = " ".join(found.stdout.split())
    assert "lr, heads, from 4 candidates for each, on seeds 10000, whose results are not reported" in said
    assert (
        "8 tuning runs: 4 candidates for every encoding on every task, lr = 0.001, 0.01; heads = 1, 2" in found.stderr
    )
    assert sum(" is chosen, exact " in line for line in found.stderr.splitlines()) == 2
    again = fastpe("compare", "--study", "study/study.toml", "--out", "study", "--workers", "1", "--json")
    choices = json.loads(again.stdout)["choosing"]["choices"]
    assert [len(each["candidates"]) for each in choices] == [4, 4]
    assert "8 of them already finished" in again.stderr
    assert json.loads(fastpe("report", "study", "--json").stdout)["choosing"]["choices"] == choices


def test_a_dry_run_counts_the_runs_that_choose(folder):
    found = fastpe(*STUDY, *CHOOSE, "--dry-run", "--json")
    plan, plain = json.loads(found.stdout), json.loads(fastpe(*STUDY, "--dry-run", "--json").stdout)
    assert (plan["runs"], plan["tuning_runs"], plain["runs"], plain["tuning_runs"]) == (12, 8, 4, 0)
    assert plan["flop"] == pytest.approx(3 * plain["flop"], rel=0.05)  # two heads take a little more
    assert [line.split(":")[0] for line in found.stderr.splitlines() if line.endswith("per run")] == [
        "alibi on reverse, lr=0.001 heads=1", "alibi on reverse, lr=0.001 heads=2",
        "nope on reverse, lr=0.001 heads=1", "nope on reverse, lr=0.001 heads=2",
    ]  # fmt: skip
    assert fastpe(*STUDY, *CHOOSE, "--dry-run").stdout.startswith("runs   12, 8 of them for --choose")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("compare", "ENCODING and --task are missing: a study needs both, or --study FILE"),
        ("compare alibi", "--task is missing: a study needs both, or --study FILE"),
        ("compare alibi --task sort --seeds 0", "--seeds must be at least 1, not 0"),
        ("compare alibi --task sort --set width", "--set must be KEY=VALUE, not 'width'"),
        ("compare alibi --task sort --choose lr=0.1", "choose 'lr' must have at least two different values"),
        ("compare alibi --task sort --choose lr=1,2 --vary lr=1,2", "lr=1 is already set by alibi"),
        ("compare alibi --task sort --choose lr=1,2 --choose lr=3,4", "--choose lr is given twice"),
        ("compare alibi --task sort --choose lr", "--choose must be KEY=VALUE, not 'lr'"),
        ("compare --study x.toml --choose lr=1,2", "--study names a complete study"),
        ("compare alibi --task sort --shard 3/2", "--shard must be I/N, such as 1/4, not '3/2'"),
        ("compare --study none.toml", "none.toml: No such file or directory"),
        ("merge none --out x", "none is not a study folder: it has no study.toml"),
        ("report none", "none: No such file or directory"),
        ("report none --runs other", "--runs needs a study"),
    ],
)
def test_mistakes_cost_one_line(folder, arguments, line):
    assert line in refused(2, *arguments.split())
    assert list(folder.iterdir()) == []


def test_a_study_of_any_depth_costs_one_line_too(folder):
    for text in (".".join("a" * 30_000) + " = 1", "x = " + "[" * 100_000):
        (folder / "deep.toml").write_text(text)
        assert refused(2, "compare", "--study", "deep.toml").startswith("fastpe: error: deep.toml: ")
    (folder / "layers.toml").write_text("[encoding.nope]\n[task.reverse]\n[settings]\nlayers = 1000000000\n")
    said = refused(2, "compare", "--study", "layers.toml", "--dry-run")
    assert "layers must be at most 10000, not 1000000000" in said


@pytest.mark.parametrize(("seeds", "said"), [("6", True), ("7", False)])
def test_a_plan_says_that_its_seeds_are_too_few(seeds, said):
    """Of two others beside the baseline 2^-5 is not below 5 % / 2: known before anything is trained."""
    line = "With 6 seeds no difference can be called significant: at least 7 seeds are needed for 2 comparisons"
    result = fastpe("compare", "alibi", "rope", "nope", "--task", "reverse", "--seeds", seeds, "--dry-run",
                    "--set", "samples=8", "--set", "epochs=1")  # fmt: skip
    assert (result.exit_code, line in result.stdout + result.stderr) == (0, said)


@pytest.mark.full("starts processes")
def test_an_encoding_has_settings_and_options_of_its_own(folder):
    own = ["abacus:positions=digits:20", "alibi:slope=0.5,heads=2", "rope_2d:grid=1,9,norm=layernorm", "rope"]
    words = ["compare", "nope", "abacus", *own, "--task", "addition", *SMALL, "--baseline", own[0], "--seeds", "1"]
    found = fastpe(*words, "--out", "study")
    assert found.exit_code == 0, found.output
    said = " ".join(found.stdout.split())
    assert "abacus: positions='digits:99:0-1', the places of digits in their numbers." in said
    assert "abacus: positions='digits:20:0-1', the places of digits in their numbers." in said
    assert "abacus: positions='digits:99:0-1'" in found.stderr
    study = Study.read(folder / "study" / "study.toml")
    assert study.baseline == own[0]
    assert list(study.encodings) == ["nope", "abacus", *own]
    assert study.encodings[own[0]] == {"encoding": "abacus", "positions": "digits:20"}
    assert study.encodings[own[1]] == {"encoding": "alibi", "options": {"slope": 0.5}, "heads": 2}
    assert study.encodings[own[2]] == {"encoding": "rope_2d", "options": {"grid": [1, 9]}, "norm": "layernorm"}


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("abacus:position=digits:20", "setting or option 'position' is unknown; did you mean 'positions'?"),
        ("alibi:slop=1", "alibi:slop=1: setting or option 'slop' is unknown; did you mean 'slope'?"),
        ("alibi:heads=2,heads=4", "alibi:heads=2,heads=4: heads is given twice"),
        ("alibi:heads=", "alibi:heads= must be KEY=VALUE, not 'heads='"),
        ("rope_2d", "encoding 'rope_2d' needs positions with several coordinates, but sequences of tasks have one: "),
        ("rope_2d:grid=2,2", "rope_2d:grid=2,2 on addition: option 'grid' must be 2 sides whose product is 9"),
    ],
)
def test_what_is_wrong_with_an_encoding_is_said_before_any_run(encoding, said, folder):
    assert said in refused(2, "compare", "nope", encoding, "--task", "addition", *SMALL)


def test_a_study_in_a_file_is_held_to_what_encodings_need(folder):
    (folder / "study.toml").write_text("seeds = 1\n[encoding.geodesic]\n[task.addition]\n")
    said = refused(2, "compare", "--study", "study.toml")
    assert "geodesic on addition: encoding 'geodesic' needs positions with several coordinates" in said
