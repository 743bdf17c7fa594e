"""What `fastpe bench` says of made-up figures: verdicts, a disturbed machine, its tables as text and as Markdown."""

import contextlib
import json
import re

import pytest
from click.testing import CliRunner

from fastpe.benchmarks import disturbance, figures, models, step, turns
from fastpe.benchmarks.figures import judged
from fastpe.doctor import probe
from fastpe.model.cost import step_flop
from fastpe_cli import bench as command
from fastpe_cli.bench_tables import tables_of
from fastpe_cli.main import main
from fastpe_cli.tables import as_markdown, as_text

MET, MISSED, NONE = judged(2.0, 1.0), judged(2.0, 1.0, at_most=True), judged(2.0, None)
PEAK = {"threads": 1, "own_gflops": 100.0, "blas_gflops": 90.0}
PEERS = {"sdpa": {"ms": 2.0, "times": MISSED}, "flex": {"absent": "no compiler"}}
MADE_UP = {
    "step": {
        "rows": [{
            "model": "paper", "threads": 1, "fastpe": {"ms": 1.0, "of_peak": MET, "of_peak_masked_too": 0.5},
            "peers": {"eager": {"ms": 2.0, "times": MISSED}, "compile": {"absent": "not installed"}},
        }],
        "sgemm": [PEAK], "disturbed": [],
    },
    "encodings": {
        "rows": [
            {"encoding": "shaw", "slots": ["rel_key"], "ms": 1.0, "times": MISSED, "fill_us": 3.0, "pull_us": None},
        ],
        "disturbed": ["the step without an encoding took 1.50 times as long"],
    },
    "attention": {
        "threads": 2,
        "beside": [{"case": "causal ALiBi", "length": 4096, "part": "forward", "ms": 1.0, "peers": PEERS}],
        "errors": [{
            "case": "causal ALiBi", "result": "out", "error": 1e-7, "peers": {"sdpa": {"error": 2e-7, "ratio": MET}},
        }],
        "peak": {
            **PEAK, "disturbed": ["sgemm took 1.50 times as long"],
            "rows": [{"length": 4096, "causal": True, "part": "forward", "ms": 1.0, "gflops": 9.0, "of_peak": MISSED}],
        },
        "terms": [{"term": "none", "length": 4096, "part": "forward", "ms": 1.0, "times": None},
                  {"term": "alibi", "length": 4096, "part": "forward", "ms": 1.0, "times": MET}],
        "long": {
            "rows": [{"length": 65536, "slope": 0.5, "seconds": 1.0, "extra_mib": MISSED, "why": None}],
            "skipping": {"length": 65536, "seconds": 1.0, "every_seconds": 2.0, "times": MET},
        },
    },
    "frameworks": {
        "threads": 1,
        "beside": [{"case": "BLOOM", "length": 2048, "part": "forward", "ms": 1.0, "peers": {
            "eager": {"ms": 2.0, "times": MET}, "flex": {"absent": "no compiler"},
        }}],
        "absent": {"T5 encoder": "not installed"},
        "decoding": {"absent": None, "rows": [
            {"case": "bias", "length": 64, "us": 9.0, "sdpa": MET},
            {"case": "bias", "length": 2048, "us": 90.0, "sdpa": MISSED},
        ]},
        "features": [{"feature": "none", "length": 1024, "part": "forward", "ms": 1.0, "times": None},
                     {"feature": "sinks", "length": 1024, "part": "forward", "ms": 1.0, "times": 1.02}],
    },
    "gemm": {
        "rows": [{
            "model": "paper", "product": "qkv", "m": 50, "depth": 64, "n": 192, "a_transposed": False,
            "b_transposed": True, "fused": "bias", "gflops": {"fastpe": 9.0, "fused": 8.0, "numpy": 7.0}, "ratio": MET,
        }],
        "absent": {"torch": "not installed"}, "disturbed": [],
    },
    "tables": {
        "length": 1024, "dim": 64, "heads": 8, "write_gbytes_per_s": 10.0, "disturbed": [],
        "rows": [{"encoding": "alibi", "ms": 1.0, "gbytes_per_s": 5.0, "of_write": MISSED, "times": NONE}],
    },
    "scaling": {
        "model": "paper", "threads": 2, "step": 1.9, "sgemm": 2.0, "scaling": MET, "fixed": {"1": MISSED}, "busy": MET,
        "disturbed": [],
    },
}  # fmt: skip
GOALS = {"step": 2, "encodings": 1, "attention": 6, "frameworks": 3, "gemm": 1, "tables": 1, "scaling": 3}


@pytest.fixture
def measured(monkeypatch):
    """Which tables the command asked for; it gets those above."""
    asked = []

    def measure(name, threads, quick):
        asked.append(name)
        return MADE_UP[name]

    monkeypatch.setattr(command, "_measure", measure)
    return asked


# ---------------------------------------------------------------------------------------------------------------------
# Verdicts


def verdicts(text):
    return re.findall(r"\b(?:met|MISSED)\b(?! or)", text)


@pytest.mark.parametrize("name", MADE_UP)
def test_every_table_has_its_verdicts_in_both_forms(name):
    tables = tables_of(name, MADE_UP[name])
    assert len(list(figures.goals_in(MADE_UP[name]))) == GOALS[name]
    for form in (as_text, as_markdown):
        assert len(verdicts("\n".join(map(form, tables)))) == GOALS[name]


def test_a_full_run_counts_its_goals(measured):
    done = CliRunner().invoke(main, ["bench"])
    assert done.exit_code == 0, done.stderr
    assert measured == list(MADE_UP)
    assert done.stdout.endswith("\n9 of 17 goals met\n")
    found = json.loads(CliRunner().invoke(main, ["bench", "--json"]).stdout)
    assert found["goals"] == {"met": 9, "of": 17}
    assert found["attention"] == MADE_UP["attention"]


def test_the_table_of_frameworks_says_what_is_not_there():
    beside, decoding, features = map(as_text, tables_of("frameworks", MADE_UP["frameworks"]))
    assert "transformers eager" in beside
    assert "PyTorch SDPA" not in beside
    assert beside.endswith("T5 encoder: not installed\ncompiled FlexAttention: no compiler")
    assert re.search(r"bias +9\.0: 2\.00x \(>= 1\.00x: met\) +90\.0: 2\.00x \(.*: MISSED\)", decoding)
    assert "sinks  forward  1.00  1.02x" in features
    without = {**MADE_UP["frameworks"], "decoding": {"rows": [], "absent": "not installed"}}
    assert as_text(tables_of("frameworks", without)[1]).endswith("one query and a cache: not installed")


def test_a_quick_run_judges_nothing(measured, folder):
    done = CliRunner().invoke(main, ["bench", "--quick", "--markdown", "quick.md"])
    assert done.exit_code == 0, done.stderr
    assert measured == list(MADE_UP)
    for text in (done.stdout, (folder / "quick.md").read_text()):
        assert "a quick run is too short for conclusions" in text
        assert "2.00x" in text
        assert not verdicts(text)
        assert not re.search(r"goals|\bdisturbed|>=|<=", text)
    printed = CliRunner().invoke(main, ["bench", "--quick", "--json"]).stdout
    assert not re.search(r'"(met|goals?|at_most|disturbed)"', printed)
    found = json.loads(printed)
    assert found["scaling"]["busy"] == {"value": 2.0}
    assert found["machine"]["cpu"]["usable_cores"] >= 1


# ---------------------------------------------------------------------------------------------------------------------
# A disturbed machine


@pytest.mark.parametrize(
    ("fastest", "disturbed"),
    [
        ([1.0, 1.04, 1.02, 1.0, 1.03], False),
        ([1.0, 1.0, 1.0, 9.0, 9.0], False),  # two bad turns of five leave the figure as it is
        ([1.0, 1.0, 9.0, 9.0, 9.0], True),
        ([9.0, 1.3, 1.3, 1.0, 1.3], True),
        ([1.0, 9.0], False),  # too few to say
        ([], False),
    ],
)
def test_turns_that_differ_tell_of_a_disturbed_machine(fastest, disturbed):
    assert len(disturbance.between_turns("sgemm", fastest)) == disturbed


def test_shares_of_the_peak_are_compared_by_model_with_those_on_one_thread():
    shares = {("paper", 1): 0.8, ("lm", 1): 0.6, ("paper", 2): 0.59, ("lm", 2): 0.46, ("alibi", 2): 0.1}
    assert disturbance.on_more_threads(shares) == ["paper reached 59% of the peak, threads: 2, but 80% on one"]


@pytest.mark.full("measures for seconds")
@pytest.mark.parametrize(("slower", "spread", "signs"), [(1.2, 1.0, []), (1.5, 1.0, ["paper"]), (1.2, 1.4, ["sgemm"])])
def test_the_step_looks_for_both_signs(slower, spread, signs, monkeypatch):
    """Made-up timings: the step on two threads takes so many times as long as it should, and sgemm varies so much."""
    peak = 1e11

    def time(candidates, effort):
        for each in candidates:
            threads = each.arguments.get("threads", 1)
            if each.label == "fastpe":
                flop = step_flop(models.CASES["paper"].config, 32, unmasked=True)
                each.turns = [flop / (0.8 * peak * threads) * (slower if threads > 1 else 1.0)] * 5
            else:
                one = probe.PEAK_FLOP / peak if each.label == "peak" else 10.0
                each.turns = [one, *[one * (spread if threads > 1 else 1.0)] * 4]
            each.seconds = list(each.turns)

    monkeypatch.setattr(step, "Worker", lambda library, threads: contextlib.nullcontext())
    monkeypatch.setattr(step, "prepare", list)
    monkeypatch.setattr(step, "take_turns", time)
    table = step.measure(turns.Effort(), lambda text: None, [1, 2], models=("paper",), peers=())
    assert [sign.split(" ")[0].rstrip(",") for sign in table["disturbed"]] == signs
    lines = [line for line in as_text(*tables_of("step", table)).splitlines() if line.startswith("the machine was")]
    assert lines == [f"the machine was disturbed: {sign}" for sign in table["disturbed"]]


def test_a_disturbed_machine_is_said_below_the_table_and_in_the_json(measured):
    done = CliRunner().invoke(main, ["bench", "encodings", "attention"])
    assert done.stdout.count("the machine was disturbed: ") == 2
    assert "the machine was disturbed: sgemm took 1.50 times as long\n" in done.stdout
    found = json.loads(CliRunner().invoke(main, ["bench", "encodings", "--json"]).stdout)
    assert found["encodings"]["disturbed"] == ["the step without an encoding took 1.50 times as long"]


def test_a_turn_is_its_fastest_call():
    class Timed:
        answers = iter([[3.0, 2.0], [5.0, 4.0, 6.0]])

        def ask(self, request):
            return {"seconds": next(self.answers)}

    one = turns.Candidate("sgemm", Timed(), "peak")
    turns.take_turns([one], turns.Effort(turns=2, most=2))
    assert (one.turns, one.best) == ([2.0, 4.0], 2.0)


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ([1.0, 1.02], [4.0, 4.0, 4.0], 2),
        ([1.5, 1.0, 1.4, 1.01], [4.0] * 4, 4),
        ([4.0] * 4, [1.5, 1.0, 1.4, 1.01], 4),
        ([2.0, 1.0, 1.5, 3.0, 1.4, 1.5], [4.0] * 6, 5),
    ],
)
def test_turns_go_on_for_all_until_the_fastest_of_each_was_met_twice(first, second, taken):
    class Timed:
        def __init__(self, answers):
            self.answers = iter(answers)

        def ask(self, request):
            return {"seconds": [next(self.answers)]}

    both = [turns.Candidate("", Timed(answers), "peak") for answers in (first, second)]
    turns.take_turns(both, turns.Effort(turns=2, most=5))
    assert [each.turns for each in both] == [first[:taken], second[:taken]]


# ---------------------------------------------------------------------------------------------------------------------
# Markdown


def test_the_file_has_all_that_is_printed_and_what_made_it(measured, folder):
    file = folder / "results.md"
    file.write_text("of an earlier run")
    done = CliRunner().invoke(main, ["bench", "scaling", "step", "--threads", "2", "--markdown", str(file)])
    assert done.exit_code == 0, done.stderr
    assert done.stderr == f"written: {file}\n"
    text = file.read_text()
    command = "fastpe bench step scaling --threads 2"
    assert text.startswith(f"# Benchmarks: step scaling\n\n- made by: `{command}`\n- date: 20")
    assert str(folder) not in text
    for printed in done.stdout.splitlines()[:2]:  # CPU and versions
        assert re.sub(" +", " ", printed.partition(" ")[2]).strip() in text
    assert "| paper | 1 | 1.00 | 200.0 % (>= 100.0 %: met) | 2.00 = 2.00x (<= 1.00x: MISSED) | - |\n" in text
    assert "- torch.compile: not installed\n" in text
    assert text.endswith("\n\n**3 of 5 goals met**\n")
    assert re.findall("^## (.*)$", text, re.M) == ["Training step", "Scaling of the step"]
    assert [file] == list(folder.iterdir())


def test_every_row_of_markdown_has_as_many_cells_as_its_head():
    for name, table in MADE_UP.items():
        for each in tables_of(name, table):
            rows = [line for line in as_markdown(each).splitlines() if line.startswith("|")]
            assert {row.count("|") for row in rows} <= {len(each.head) + 1}, name


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("missing/results.md", "Invalid value for '--markdown': folder 'missing' does not exist"),
        ("there", "Invalid value for '--markdown': File 'there' is a directory."),
        ("file/results.md", "Invalid value for '--markdown': folder 'file' does not exist"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(file, says, measured, folder):
    (folder / "there").mkdir()
    (folder / "file").touch()
    done = CliRunner().invoke(main, ["bench", "--markdown", file])
    assert (done.exit_code, done.stdout, measured) == (2, "", [])
    assert says in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["file", "there"]


def test_a_folder_without_leave_to_write_is_refused_too(monkeypatch, measured, folder):
    monkeypatch.setattr(command.os, "access", lambda path, mode: False)
    done = CliRunner().invoke(main, ["bench", "--markdown", "results.md"])
    assert (done.exit_code, measured) == (2, [])
    assert "folder '.' is not writable" in done.stderr
