"""Settings that a study chooses: by validation alone, the best of the same grid for each, on seeds of their own; the
same by shards, after an interruption and reported again."""

import csv
import io
import itertools
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import small_study
from small_study import TUNED as STUDY

import fastpe
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.experiments import study_report
from fastpe.experiments.compare import compare
from fastpe.experiments.existing_runs import merge, report_study
from fastpe.experiments.jobs import JobsStarted, RunEnded
from fastpe.experiments.study import Study, Trial
from fastpe.tasks import frame
from fastpe.training import evaluation
from fastpe.training.config_file import RunError
from fastpe.training.events import Noted
from fastpe.training.text_data import text_parts

SMALL, LR = STUDY.settings, STUDY.choose["lr"]
FILES = (*small_study.FILES, "choices.csv")
PAIRS = list(itertools.product(STUDY.tasks, STUDY.encodings))
WILD = replace(
    STUDY, tasks={"running_sum": {}}, encodings={"nope": {"lr": 1e30}, "alibi": {}}, choose={"heads": [1, 2]}
)


@pytest.fixture(scope="module")
def made(no_pdf_at_all, tmp_path_factory):
    """A study that chooses, made."""
    return compare(STUDY, out=tmp_path_factory.mktemp("studies") / "study", workers=1)


def outcome_of(out, config):
    """The run folder with these settings."""
    (found,) = (
        path for path in (out / "runs").iterdir() if json.loads((path / "config.json").read_text())["config"] ==
        config.to_dict()
    )  # fmt: skip
    return found


def validated(path, config):
    """What the model in a run folder gets right of sequences that are drawn here, or its mean squared error."""
    model, chosen = fastpe.load(path), config.chosen
    seed, count = (config.seed if config.task == "running_sum" else 0), config.test_sequences
    lengths = np.full(count, config.train_length)
    if config.lengths == "uniform":
        within = chosen.lengths.within(1, config.train_length)
        lengths = within[Draws(Stream(seed, "validation lengths")).integers(len(within), (count,))]
    stream, width = Stream(seed, "validation"), config.model.train_length
    drawn = frame.sequences(chosen, stream, lengths, config.causal, config.dtype, width)
    if config.task == "running_sum":
        return float(np.mean((model(drawn.x.astype("f4")).astype("f8") - drawn.y) ** 2))
    right = model(drawn.x, lengths=drawn.lengths).argmax(axis=-1) == drawn.y
    return float((right | (drawn.weights == 0)).all(axis=1).mean())


@pytest.mark.full("takes seconds")
def test_the_chosen_candidate_is_the_best_in_validation(made):
    """Every tuning run's score found anew, from its model, on sequences drawn here."""
    for each in made.summary["choosing"]["choices"]:
        levels = []
        for number in range(2):
            own = []
            for seed in (10_000, 10_001):
                config = STUDY.trial_config(Trial(each["task"], each["encoding"], number, seed))
                own.append(validated(outcome_of(made.out, config), config))
            assert each["candidates"][number]["values"] == pytest.approx(own, rel=1e-5)
            is_error = each["task"] == "running_sum"
            levels.append(-np.exp(np.mean(np.log(own))) if is_error else np.mean(own))
        assert each["chosen"] == {"lr": LR[int(np.argmax(levels))]}
        assert each["candidates"][2]["values"] == [None, None]
        assert all("infinite or NaN" in why for why in each["candidates"][2]["failed"])
    assert {each["chosen"]["lr"] for each in made.summary["choosing"]["choices"]} == {3e-2}  # not just the first


@pytest.mark.full("starts processes")
def test_what_is_reported_has_the_chosen_settings_and_the_studys_seeds(made):
    table = list(csv.DictReader(io.StringIO((made.out / "results.csv").read_text())))
    assert {row["seed"] for row in table} == {"0", "1"}
    assert {row["chosen"] for row in table} == {"lr=0.03"}
    for cell in STUDY.run_keys():
        path = outcome_of(made.out, STUDY.config(cell, {"lr": 3e-2}))
        tests = json.loads((path / "result.json").read_text())["test"]
        known = [c for c in made.summary["cells"] if (c["task"], c["encoding"]) == (cell.task, cell.encoding)]
        assert [c["values"][cell.seed] for c in known] == [tests[c["length"]][c["metric"]] for c in known]
    assert len(list((made.out / "runs").iterdir())) == 4 * 3 * 2 + 4 * 2


@pytest.mark.full("starts processes")
def test_every_encoding_has_the_same_candidates(made):
    found = made.summary["choosing"]
    assert (found["tried"], found["seeds"], found["grid"]) == (3, [10_000, 10_001], {"lr": LR})
    assert [(each["task"], each["encoding"]) for each in found["choices"]] == PAIRS
    table = list(csv.DictReader(io.StringIO((made.out / "choices.csv").read_text())))
    for task, encoding in PAIRS:
        own = [(row["lr"], row["seed"]) for row in table if (row["task"], row["encoding"]) == (task, encoding)]
        assert own == [(str(lr), seed) for lr in LR for seed in ("10000", "10001")]
    assert [row["value"] == "" for row in table] == [row["lr"] == "1e+30" for row in table]
    assert {row["chosen"] for row in table if row["lr"] == "0.03"} == {"yes"}


@pytest.mark.full("needs a study")
def test_no_tuning_run_is_tested(made, monkeypatch):
    """Nor would other tests be other choices: tests are not even drawn, and differ in nothing but themselves."""

    def refuse(*_):
        raise AssertionError("a test set was drawn")

    monkeypatch.setattr(evaluation, "_of_tokens", refuse)
    monkeypatch.setattr(evaluation, "_of_numbers", refuse)
    monkeypatch.setattr(evaluation, "Stream", lambda seed, name, *_: None if name == "test" else refuse())
    longer = replace(STUDY, settings={**SMALL, "test_lengths": [4, 12]})
    for task, encoding in PAIRS:
        trial = Trial(task, encoding, 1, 10_000)
        config = STUDY.trial_config(trial)
        assert longer.trial_config(trial) == config
        found = fastpe.train(config, progress=False).result
        assert found["test"] == {}
        (kept,) = [each for each in made.summary["choosing"]["choices"]
                   if (each["task"], each["encoding"]) == (task, encoding)]  # fmt: skip
        key = "exact" if task == "majority" else "loss"
        assert found["validation"][key] == kept["candidates"][1]["values"][0]


def test_tuning_runs_differ_in_what_they_are_judged_by_alone():
    for task, encoding in PAIRS:
        config = STUDY.trial_config(Trial(task, encoding, 1, 10_001))
        own = replace(config, seed=0, validation=0, test_lengths=STUDY.config_of(task).test_lengths)
        assert own == replace(STUDY.config_of(task, encoding), lr=3e-2)
        assert config.validation == SMALL["test_sequences"]
    own = replace(STUDY, settings={**SMALL, "validation": 7})
    assert own.trial_config(Trial("majority", "nope", 0, 10_000)).validation == 7


@pytest.mark.parametrize("task", ["reverse", "running_sum"])
def test_the_sequences_to_validate_with_are_those_of_no_test(task, monkeypatch):
    drawn, real = {}, frame.draw

    def draw(chosen, stream, count, length, *more):
        found = real(chosen, stream, count, length, *more)
        drawn.setdefault(stream.stream, set()).update(np.asarray(row).tobytes() for row in found[0])
        return found

    for module in (frame, evaluation.frame):
        monkeypatch.setattr(module, "draw", draw)
    study = replace(STUDY, tasks={task: {}}, settings={**SMALL, "train_length": 30, "lengths": "fixed"})
    config = replace(study.trial_config(Trial(task, "nope", 0, 10_000)), test_lengths=(30,), epochs=1)
    fastpe.train(config, progress=False)
    names = {name.partition(" ")[0].partition("#")[0] for name in drawn}
    assert {"train", "validation", "test"} <= names
    for one, other in itertools.combinations(("train", "validation", "test"), 2):
        rows = [set.union(*(own for name, own in drawn.items() if name.startswith(part))) for part in (one, other)]
        assert not rows[0] & rows[1]


def test_of_a_text_tuning_reads_nothing_that_tests_read(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + k % 26) for k in range(1000)))
    study = Study(
        ["nope"], {"text": {"options": {"share": 0.2}}}, settings={**SMALL, "data": str(path)}, choose={"lr": LR}
    )
    config = study.trial_config(Trial("text", "nope", 0, 10_000))
    (whole, tests), (training, validation) = text_parts(study.config_of("text")), text_parts(config)
    assert [len(each) for each in (whole, tests, training, validation)] == [800, 200, 640, 160]
    np.testing.assert_array_equal(np.concatenate([training, validation]), whole)
    found = fastpe.train(config, progress=False).result
    assert found["test"] == {}
    assert found["validation"]["tokens"] == 159


# ---------------------------------------------------------------------------------------------------------------------
# Made again


@pytest.mark.full("takes seconds")
def test_an_interrupted_choice_goes_on(made, tmp_path):
    ended = []

    def stop(event):
        if isinstance(event, RunEnded):
            ended.append(event)
            if len(ended) == 15:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(STUDY, out=tmp_path / "out", workers=1, progress=stop)
    with pytest.raises(RunError, match=r"lacks \d\d of 32 runs"):
        report_study(tmp_path / "out")
    events = []
    found = compare(STUDY, out=tmp_path / "out", workers=1, progress=events.append)
    started = [(each.runs, each.reused) for each in events if isinstance(each, JobsStarted)]
    assert started == [(24, sum("failed" not in each.outcome for each in ended)), (8, 0)]
    assert json.dumps(found.summary) == json.dumps(made.summary)
    assert (tmp_path / "out" / "choices.csv").read_bytes() == (made.out / "choices.csv").read_bytes()


@pytest.mark.full("takes seconds")
def test_shards_choose_the_same(made, tmp_path):
    parts = [tmp_path / f"part{number}" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        assert compare(STUDY, out=part, workers=1, shard=(number, 3)) is None
    with pytest.raises(RunError, match="lacks 16 of 32 runs"):
        merge(parts[:1], tmp_path / "some")
    found = merge(parts, tmp_path / "whole")
    assert json.dumps(found.summary) == json.dumps(made.summary)
    for name in ("choices.csv", "results.md", "results.json", "study.toml"):
        assert (tmp_path / "whole" / name).read_bytes() == (made.out / name).read_bytes()
    cells = [STUDY.part(number, 3) for number in (1, 2, 3)]
    assert sorted(itertools.chain(*cells)) == sorted(STUDY.run_keys())


@pytest.mark.full("needs a study")
def test_reported_again_it_has_the_same_bytes(made, tmp_path):
    copy = shutil.copytree(made.out, tmp_path / "copy")
    before = {name: (copy / name).read_bytes() for name in FILES}
    for name in small_study.FILES[:4]:
        (copy / name).unlink()
    report_study(copy)
    assert {name: (copy / name).read_bytes() for name in FILES} == before
    shutil.rmtree(outcome_of(copy, STUDY.trial_config(Trial("majority", "nope", 0, 10_000))))
    with pytest.raises(RunError, match="lacks 3 of 32 runs"):  # and the two that wait for that choice
        report_study(copy)


@pytest.mark.full("takes seconds")
def test_more_seeds_go_on_with_the_same_choice(made, tmp_path):
    copy, events = shutil.copytree(made.out, tmp_path / "copy"), []
    found = compare(replace(STUDY, seeds=3), out=copy, workers=1, progress=events.append)
    started = [(each.runs, each.reused) for each in events if isinstance(each, JobsStarted)]
    assert started == [(24, 16), (12, 8)]  # those that failed fail again
    assert found.summary["choosing"] == made.summary["choosing"]
    with pytest.raises(RunError, match="contains another study"):
        compare(replace(STUDY, choose_seeds=3), out=copy)
    plain = replace(STUDY, choose={}, choose_seeds=None, seeds=[0, 1, 10_000])  # with a seed that chose
    with pytest.raises(RunError, match="contains another study"):
        compare(plain, out=copy)


@pytest.mark.full("takes seconds")
def test_where_everything_fails_it_is_one_line_and_the_rest_goes_on(tmp_path):
    events = []
    found = compare(WILD, out=tmp_path / "out", workers=1, progress=events.append)
    notes = [each.message for each in events if isinstance(each, Noted)]
    whose = [
        line for line in notes if line.startswith("nope on running_sum: no candidate can be chosen: all 4 tuning ")
    ]
    assert len(whose) == 1
    assert found.summary["failed"] == 2
    own = {each["encoding"]: each for each in found.summary["choosing"]["choices"]}
    assert (own["nope"]["chosen"], own["alibi"]["chosen"]) == (None, {"heads": 2})
    said = study_report.verdict(found.study, found.summary)
    assert "No candidate could be chosen for nope on running_sum: these runs count as failed." in said
    assert "4 tuning runs failed; they rank below all others." in said
    before = {name: (tmp_path / "out" / name).read_bytes() for name in FILES}
    report_study(tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == before


# ---------------------------------------------------------------------------------------------------------------------
# What is said


@pytest.mark.full("needs a study")
def test_the_page_says_what_was_chosen(made):
    page, text = ((made.out / name).read_text() for name in ("report.html", "results.md"))
    assert "Chosen by validation on other seeds, from 3 candidates for every task and encoding: lr. " in page
    assert "No setting was chosen by these results" not in page
    for said in (page, text):
        assert "3 candidates for every encoding on every task, lr = 0.001, 0.03, 1e+30, on seeds 10000, 10001." in said
        assert "Tuning runs were not tested" in said
        assert "from 3 candidates for each, on seeds 10000, 10001, whose results are not reported" in said
    page = re.sub("<td[^>]*>", "<td>", page)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| majority | ", "| running_sum | "))]
    chosen = [row for row in rows if row[2] == "lr=0.03"]
    assert [(row[0].removeprefix("| "), row[1]) for row in chosen] == PAIRS
    for row, each in zip(chosen, made.summary["choosing"]["choices"], strict=True):
        scores = [f"{tried['score']:.4g}" for tried in each["candidates"][:2]]
        assert row[3:] == [*scores, "-, 2 failed |"]
        assert f"<td>{scores[0]}</td><td>{scores[1]}</td><td>-, 2 failed</td>" in page


@pytest.mark.full("starts processes")
def test_without_a_grid_it_says_that_nothing_was_chosen(tmp_path):
    plain = replace(STUDY, choose={}, choose_seeds=None, encodings={"nope": {}}, tasks={"majority": {}})
    found = compare(plain, out=tmp_path / "out", workers=1)
    assert "No setting was chosen by these results" in (tmp_path / "out" / "report.html").read_text()
    assert "Chosen settings" not in (tmp_path / "out" / "results.md").read_text()
    assert not (tmp_path / "out" / "choices.csv").exists()
    assert "choosing" not in found.summary
