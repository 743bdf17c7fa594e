"""`fastpe reproduce table5` and what it is made of: statistics, sealed results, workers that are killed, verdicts."""

import csv
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from fastpe_cli.main import main
from scipy import stats

from fastpe import files
from fastpe.config import TrainConfig
from fastpe.experiments import claims, plot, report, results, statistics, sweep, table5, worker
from fastpe.files import DamagedFileError
from fastpe.position import Position
from fastpe.tasks import running_sum
from fastpe.training import train
from fastpe.transformer import Transformer

TINY = {"samples": 32, "epochs": 2, "test_sequences": 8}
SMALL = TrainConfig("sinusoidal", width=8, hidden=8, train_length=5, samples=64, epochs=3, test_lengths=(5, 10))
COMMAND = [sys.executable, "-c", "from fastpe_cli.main import main; main()", "reproduce", "table5"]


# Statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("values", [[2.5, 3.5], [0.1, 0.25, 0.7, 0.3, 0.2], [1e9, 1e9 + 1, 1e9 + 2]])
def test_the_interval_is_scipy_s(values, confidence):
    found = statistics.estimate(values, confidence)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    np.testing.assert_allclose((found.low, found.high), (theirs.low, theirs.high), rtol=1e-12)
    np.testing.assert_allclose(found.sd, stats.tstd(values), rtol=1e-12)


def test_the_paired_interval_is_scipy_s():
    first, second = [3.1, 2.9, 3.6, 3.3, 2.7], [2.0, 2.1, 2.2, 2.3, 2.9]
    found = statistics.paired_difference(first, second)
    theirs = stats.ttest_rel(first, second).confidence_interval()
    np.testing.assert_allclose((found.low, found.high), (theirs.low, theirs.high), rtol=1e-12)


def test_one_value_has_no_interval():
    assert statistics.estimate([3.0]) == statistics.Estimate(3.0, None, None, None, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: statistics.estimate([]), "at least one"),
        (lambda: statistics.estimate([1.0, 2.0], 1.0), "confidence must lie in"),
        (lambda: statistics.paired_difference([1.0], [1.0, 2.0]), "as many values, not 1 and 2"),
    ],
)
def test_statistics_say_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["one", "train", "root_train", "position", "length"])
def test_reference_points_are_those_of_a_simulation(scale):
    """The zero predictor, and the best answer that does not tell a sequence from its reverse."""
    length = 12
    factors = running_sum.target_factors(length, scale, 5)
    x, y = running_sum.sample(3, "test", 20_000, length, np.float64)
    forward, backward = y * factors, (np.cumsum(x[:, ::-1], axis=1) * factors)[:, ::-1]
    np.testing.assert_allclose(np.mean(forward**2), running_sum.zero_predictor(length, factors), rtol=0.03)
    best = (forward + backward) / 2
    np.testing.assert_allclose(np.mean((forward - best) ** 2), running_sum.reversal_bound(length, factors), rtol=0.03)


def test_plain_targets_have_the_plain_reference_points():
    factors = running_sum.target_factors(50)
    assert running_sum.zero_predictor(50, factors) == running_sum.zero_predictor(50) == 25.5
    assert running_sum.reversal_bound(50, factors) == running_sum.reversal_bound(50) == 12.25


def test_scaled_targets_are_learned_and_tested_in_their_own_unit():
    plain = train(replace(SMALL, epochs=1, samples=8, lr=1e-12)).result["test"]["10"]
    scaled = train(replace(SMALL, epochs=1, samples=8, lr=1e-12, target_scale="train")).result["test"]["10"]
    model = Transformer(SMALL.model)
    x, y = running_sum.sample(0, "test", SMALL.test_sequences, 10, np.float32, step=10)
    np.testing.assert_allclose(plain["mse"], np.mean((model(x) - y) ** 2), rtol=1e-5)
    np.testing.assert_allclose(scaled["mse"], np.mean((model(x) - y / 5) ** 2), rtol=1e-5)
    np.testing.assert_allclose(scaled["nmse"], scaled["mse"] / (5.5 / 25), rtol=1e-12)


def test_fresh_data_differ_from_epoch_to_epoch(monkeypatch):
    seen = []
    sample = running_sum.sample

    def record(seed, stream, *rest, **more):
        if stream == "train":
            seen.append(more["step"])
        return sample(seed, stream, *rest, **more)

    monkeypatch.setattr(running_sum, "sample", record)
    losses = {data: [line["loss"] for line in train(replace(SMALL, data=data)).history] for data in ("fixed", "fresh")}
    assert seen == [0, 0, 1, 2, 3]
    assert all(a != b for a, b in zip(losses["fixed"], losses["fresh"], strict=True))


@pytest.mark.parametrize(
    ("init", "sd"),
    [("uniform", 1 / np.sqrt(3 * 256)), ("xavier_uniform", np.sqrt(2 / 512)), ("xavier_normal", np.sqrt(2 / 512)),
     ("fan_in_normal", 1 / 16), ("small_normal", 0.02)],
)  # fmt: skip
def test_initial_weights_have_the_spread_of_their_rule(init, sd):
    model = Transformer(replace(TrainConfig("nope"), width=256, hidden=8, layers=1, init=init).model)
    weight = model.parameters["layers.0.attention.value.weight"]
    np.testing.assert_allclose(weight.std(), sd, rtol=0.02)
    np.testing.assert_allclose(weight.mean(), 0, atol=0.02 * sd)
    normal = stats.kurtosis(weight.ravel()) > -0.5  # 0 for a normal distribution, -1.2 for a uniform one
    assert normal == ("normal" in init)
    assert (model.parameters["head.bias"] == 0).all() == (init != "uniform")


@pytest.mark.parametrize(("table_scale", "norm"), [("rms", np.sqrt(32)), ("unit", 1.0)])
@pytest.mark.parametrize("scheme", ["sinusoidal", "legendre", "learned"])
def test_tables_are_rescaled_by_one_constant(scheme, table_scale, norm):
    config = table5.configuration(scheme, "causal", 0, {})
    plain, scaled = Position(config.model), Position(replace(config, table_scale=table_scale).model)
    table, before = scaled.slots(50, scaled.initial)["table"], plain.slots(50, plain.initial)["table"]
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(table.astype(float) ** 2, axis=1))), norm, rtol=1e-6)
    factor = np.abs(table).max() / np.abs(before).max()
    np.testing.assert_allclose(table, factor * before, rtol=1e-5, atol=1e-6)
    longer = scaled.slots(80, scaled.initial)["table"]
    np.testing.assert_array_equal(longer[:50], table)


def test_a_rescaled_table_that_learns_gets_the_gradient_of_what_it_is():
    """The same table, once as it is and once as a constant times another: the chain rule."""
    config = TrainConfig("learned", width=8, hidden=8, layers=1, train_length=4)
    plain, scaled = Transformer(config.model), Transformer(replace(config, table_scale="rms").model)
    name = "encoding.learned.table"
    factor = np.float32(2.0) / np.sqrt(np.sum(plain.parameters[name].astype(float) ** 2) / 4)
    plain.parameters[name][...] = factor * scaled.parameters[name]
    x, y = running_sum.sample(0, "train", 3, 4)
    loss, gradients = plain.loss_and_grads(x, y)
    np.testing.assert_allclose(scaled.loss_and_grads(x, y)[0], loss, rtol=1e-5)
    expected = factor * gradients[name]
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(scaled.loss_and_grads(x, y)[1][name], expected, rtol=1e-4, atol=atol)


def test_positions_may_start_at_one():
    base, shifted = Position(TrainConfig("legendre").model), Position(TrainConfig("legendre", start=1.0).model)
    np.testing.assert_array_equal(shifted.slots(49, {})["table"], base.slots(50, {})["table"][1:])


def test_every_combination_is_a_variant():
    found = table5.variants(["batch=32,64", "wavelet.wavelet=db4,db2"])
    assert [list(one.values()) for one in found] == [["32", "db4"], ["32", "db2"], ["64", "db4"], ["64", "db2"]]
    config = table5.configuration("wavelet", "causal", 3, found[3])
    assert (config.batch, config.options["wavelet"], config.causal, config.seed) == (64, "db2", True, 3)
    assert table5.configuration("alibi", "bidirectional", 0, found[3]).options == {"alpha0": 0.1}


def test_learned_rows_have_no_index_base():
    assert table5.configuration("legendre", "causal", 0, {"start": "1"}).start == 1.0
    assert table5.configuration("learned", "causal", 0, {"start": "1"}).start == 0.0


# Verdicts ------------------------------------------------------------------------------------------------------------


def outcomes(errors, seeds=3, jitter=0.01):
    """Results of runs whose errors are `errors[encoding][length]`, with a spread of a few percent."""
    found = {}
    for scheme in table5.ENCODINGS:
        for reading in table5.READINGS:
            for seed in range(seeds):
                factor = 1 + jitter * (seed - 1)
                test = {
                    str(length): {
                        "mse": errors[scheme][length] * factor, "nmse": errors[scheme][length] * factor / 25,
                        "mse_last": 1.0, "mse_beyond": None if length == 50 else 2.0,
                    }
                    for length in table5.LENGTHS
                }  # fmt: skip
                found[scheme, reading, seed] = {"test": test}
    return found


PAPER = {**claims.PAPER, "nope": claims.PAPER["alibi"], "learned": claims.PAPER["legendre"]}


def verdicts(found, reading):
    return {one["claim"]: one["verdict"] for one in found["verdicts"] if one["reading"] == reading}


def test_the_paper_s_own_numbers_satisfy_its_claims():
    found = verdicts(table5.summary({}, outcomes(PAPER), 3), "causal")
    assert set(found.values()) == {"holds"}
    assert len(found) == 11 + 2


def test_no_bidirectional_alibi_reaches_the_paper_s_error():
    found = verdicts(table5.summary({}, outcomes(PAPER), 3), "bidirectional")
    assert [claim for claim, verdict in found.items() if verdict == "impossible"] == [
        f"bidirectional ALiBi reaches {error:g} at {length}" for length, error in claims.PAPER["alibi"].items()
    ]


def test_a_reversed_order_fails_and_an_open_one_is_open():
    worse = {**PAPER, "wavelet": {50: 0.0024, 100: 0.5, 200: 0.5}}
    found = verdicts(table5.summary({}, outcomes(worse), 3), "causal")
    assert found["wavelet is best at 100"] == found["the errors at 100"] == "does not hold"
    assert next(v for c, v in found.items() if c.startswith("the order at 200")) == "does not hold"
    same = {scheme: {50: 0.002, 100: 0.005, 200: 0.01} for scheme in PAPER}
    found = verdicts(table5.summary({}, outcomes(same), 3), "causal")
    assert found["wavelet is best at 100"] == "undecided"
    assert found["all four are nearly equal at 50"] == "holds"


def test_an_interval_too_wide_does_not_make_the_levels_hold():
    found = table5.summary({}, outcomes({**PAPER, "wavelet": {50: 0.024, 100: 0.049, 200: 0.108}}, jitter=0.9), 3)
    assert verdicts(found, "causal")["the errors at 50"] == "undecided"


def test_variants_are_compared():
    better, worse = table5.summary({"init": "uniform"}, outcomes(PAPER), 3), table5.summary({}, outcomes(PAPER, 1), 1)
    whole = {"source": "x", "quick": False, "seeds": [0, 1, 2], "variants": [worse, better]}
    assert "The paper's order comes about, at all lengths, with: init=uniform (bidirectional), init=uniform" in (
        report.markdown(whole)
    )


def test_one_seed_decides_nothing_that_needs_an_interval():
    found = table5.summary({}, outcomes(PAPER, seeds=1), 1)
    assert verdicts(found, "causal")["wavelet is best at 200"] == "undecided"
    assert found["rows"][0]["mse"]["low"] is None


def test_a_run_that_diverged_is_reported_and_the_rest_is_judged():
    given = outcomes(PAPER)
    given["wavelet", "causal", 1] = {"failed": "the loss became infinite"}
    found = table5.summary({}, given, 3)
    row = next(row for row in found["rows"] if (row["encoding"], row["reading"]) == ("wavelet", "causal"))
    assert row["mse"] is None
    assert row["reason"] == "1 of 3 seeds have no result: the loss became infinite"
    assert verdicts(found, "causal")["wavelet is best at 100"] == "undecided"
    whole = {"source": "x", "quick": False, "seeds": [0, 1, 2], "variants": [found]}
    assert "1 of 3 seeds have no result" in report.text(whole)
    assert set(plot.draw(found, "x")) == {"png", "pdf"}


def test_tables_agree_in_all_formats():
    found = {"source": "x", "quick": True, "seeds": [0, 1, 2], "variants": [table5.summary({}, outcomes(PAPER), 3)]}
    rows = found["variants"][0]["rows"]
    lines = list(csv.DictReader(io.StringIO(report.rows_csv(found))))
    assert [float(line["mse"]) for line in lines] == [row["mse"]["mean"] for row in rows]
    assert json.loads(report.as_json(found)) == found
    assert len(list(csv.DictReader(io.StringIO(report.differences_csv(found))))) == 2 * 3 * 15
    for made in (report.text(found), report.markdown(found)):
        assert made.count("QUICK VERSION") >= 2
        assert "[0.01053, 0.01107]" in made  # wavelet at 200: 0.0108 ± 4.303 * 0.000108 / sqrt(3)
    assert all(one["name"] in report.markdown(found) for one in found["variants"][0]["settings"])


# Results that are kept -----------------------------------------------------------------------------------------------


def do(root, configs, workers=1, events=None):
    jobs = [sweep.job(root, f"run{k}", config) for k, config in enumerate(configs)]
    found = sweep.run(jobs, workers, (events if events is not None else []).append)
    return jobs, [found[one.path.name]["test"] for one in jobs]


def notes(events):
    return " / ".join(event.message for event in events if isinstance(event, sweep.SweepNoted))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs, done by two workers; the compile cache is warm afterwards."""
    root = tmp_path_factory.mktemp("finished")
    jobs, found = do(root, [SMALL, replace(SMALL, seed=1)], workers=2)
    return root, jobs, found


def test_workers_get_what_one_process_gets(finished):
    _, jobs, found = finished
    assert found == [train(job.config, threads=1).result["test"] for job in jobs]


def test_a_result_is_reused_only_for_the_same_run(finished, monkeypatch):
    root, jobs, found = finished

    def refuse(*_):
        raise AssertionError("a worker was hired")

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_Worker", refuse)
        assert do(root, [SMALL, replace(SMALL, seed=1)])[1] == found
    before = jobs[0].identity
    assert results.identity(replace(SMALL, batch=31)) != before
    monkeypatch.setattr(results._jit, "source_digest", lambda: "other sources")
    assert results.identity(SMALL) != before


@pytest.mark.parametrize("damage", ["result", "seal", "missing"])
def test_a_damaged_result_is_made_again_and_said(tmp_path, finished, damage):
    root, jobs, found = finished
    folder = jobs[0].path
    file = folder / ("seal.json" if damage == "seal" else "result.json")
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(DamagedFileError):
        results.read(folder, jobs[0].identity)
    events = []
    assert do(root, [SMALL], events=events)[1] == found[:1]
    assert "it is made again" in notes(events)
    assert results.read(folder, jobs[0].identity) is not None


def test_a_damaged_checkpoint_starts_the_run_again(tmp_path):
    key = results.identity(SMALL)
    said = []
    first = worker.do_run(tmp_path / "run", SMALL, key, said.append)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-3])
    assert worker.do_run(tmp_path / "run", SMALL, key, said.append)["test"] == first["test"]
    assert "starts again" in " ".join(message.get("note", "") for message in said)


# Death ---------------------------------------------------------------------------------------------------------------


def test_the_run_of_a_killed_worker_goes_on(tmp_path, monkeypatch):
    long = replace(SMALL, samples=2000, epochs=8)
    hired, events = [], []
    make = sweep._Worker

    def hire(inbox):
        hired.append(make(inbox))
        return hired[-1]

    def listen(event):
        events.append(event)
        if isinstance(event, sweep.RunStepped) and event.step > 100 and len(hired) == 1:
            hired[0].process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(sweep, "_Worker", hire)
    job = sweep.job(tmp_path, "run", long)
    found = sweep.run([job], 1, listen)[job.path.name]
    assert len(hired) == 2
    assert "was killed by signal 9; the run goes on from its last checkpoint" in notes(events)
    assert found["test"] == train(long, threads=1).result["test"]
    assert all(one.process.poll() is not None for one in hired)


def test_a_worker_that_dies_while_it_compiles_is_replaced(tmp_path, monkeypatch):
    hired, events = [], []
    make = sweep._Worker

    def hire(inbox):
        hired.append(make(inbox))
        if len(hired) == 1:
            hired[0].process.kill()
        return hired[-1]

    monkeypatch.setattr(sweep, "_Worker", hire)
    assert do(tmp_path, [SMALL], events=events)[1] == [train(SMALL, threads=1).result["test"]]
    assert "the worker that compiles was killed by signal 9; another one takes over" in notes(events)


def test_a_worker_that_dies_again_and_again_is_given_up(tmp_path, monkeypatch):
    def listen(event):
        if isinstance(event, sweep.RunStepped):
            for one in list(pool):
                one.process.kill()

    pool = []
    make = sweep._Worker
    monkeypatch.setattr(sweep, "_Worker", lambda inbox: pool.append(make(inbox)) or pool[-1])
    with pytest.raises(
        ChildProcessError, match=r"run: its worker was killed by signal 9, 3 times without getting on; .* memory"
    ):
        sweep.run([sweep.job(tmp_path, "run", replace(SMALL, samples=100_000))], 1, listen)


def test_too_little_memory_in_a_worker_is_one_line(tmp_path):
    huge = replace(SMALL, test_lengths=(3_000_000,), test_sequences=1)
    with pytest.raises(MemoryError, match=r"the worker of run0 ran out .*; use fewer workers"):
        do(tmp_path, [huge])


def test_a_full_disk_in_a_worker_is_one_line(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    job = {"config": SMALL.to_dict(), "path": str(tmp_path / "run"), "identity": "x"}
    said = []
    monkeypatch.setattr(os, "replace", fail)
    worker.answer(job, said.append)
    assert said[-1]["error"] in ("system", "refused")
    assert "No space left on device" in said[-1]["message"]


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path):
    wild = replace(SMALL, lr=1e30)
    jobs = [sweep.job(tmp_path, "wild", wild), sweep.job(tmp_path, "tame", SMALL)]
    found = sweep.run(jobs, 1)
    assert "became infinite or NaN" in found[jobs[0].path.name]["failed"]
    assert found[jobs[1].path.name]["test"] == train(SMALL, threads=1).result["test"]


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(table5, "QUICK", TINY)


def call(*arguments):
    return CliRunner().invoke(main, ["reproduce", "table5", *map(str, arguments)])


def test_the_whole_path(tiny, tmp_path):
    out = tmp_path / "out"
    done = call("--quick", "--seeds", 2, "--workers", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert "QUICK VERSION" in done.stderr
    assert "[24/24]" in done.stderr
    assert "Paired differences, causal" in done.stdout
    names = {"table5.md", "table5.json", "table5.csv", "table5-differences.csv", "table5.png", "table5.pdf", "runs"}
    assert {entry.name for entry in out.iterdir()} == names
    before = {entry.name: entry.read_bytes() for entry in out.iterdir() if entry.is_file()}
    found = json.loads(before["table5.json"])
    assert len(found["variants"][0]["rows"]) == 36
    again = call("--quick", "--seeds", 2, "--out", out, "--json", "--vary", "batch=32")
    assert "24 of them done before" in again.stderr
    assert json.loads(again.stdout)["variants"][0]["rows"] == found["variants"][0]["rows"]
    assert "table5.png" in {entry.name for entry in out.iterdir()}
    call("--quick", "--seeds", 2, "--out", out, "--no-plot")
    assert {entry.name for entry in out.iterdir()} == names - {"table5.png", "table5.pdf"}
    call("--quick", "--seeds", 2, "--out", out)
    assert {name: (out / name).read_bytes() for name in before} == before


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills processes")
def test_a_killed_command_leaves_no_worker_and_goes_on(tmp_path):
    """SIGKILL of the parent at any moment: workers end by themselves, and the next start ends in the same table."""
    code = f"from fastpe.experiments import table5; table5.QUICK = {TINY}\n" + COMMAND[2]
    command = [sys.executable, "-c", code, *COMMAND[3:], "--quick", "--seeds", "1", "--no-plot", "--json"]
    arguments = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], **arguments)
    seen = threading.Event()

    def read():
        with parent.stderr as lines:
            for line in lines:
                if line.startswith("[3/12]"):
                    seen.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert seen.wait(60)
    children = subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True).stdout.split()
    parent.kill()
    parent.wait()
    reader.join(20)
    assert not reader.is_alive()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{child}/exe") for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{child}/exe") for child in children)
    resumed = subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, text=True, check=True)
    assert "done before" in resumed.stderr
    whole = subprocess.run([*command, "--out", str(tmp_path / "whole")], capture_output=True, text=True, check=True)
    assert resumed.stdout == whole.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "'--seeds': 0 is not in the range"),
        (["--workers", "0"], "'--workers'"),
        (
            ["--vary", "batches=32"],
            "'batches' is no setting that the paper leaves open and that can be varied; did you mean 'b",
        ),
        (["--vary", "norm=layernorm"], "'norm' is no setting"),
        (["--vary", "wavelet.levels=2"], "option 'levels'"),
        (["--vary", "batch=many"], "batch must be sequences per update, e.g. 64, 128, 256, 10000, not 'many'"),
        (["--vary", "init=zeros"], "init must be uniform or xavier_uniform"),
        (["--vary", "wavelet.wavelet=bior2.2"], "vary: wavelet.wavelet=bior2.2: "),
        (
            ["--vary", "alibi.slope=1", "--vary", "alibi.alpha0=2"],
            "vary: alibi.slope=1, alibi.alpha0=2: options 'slope' (1) and 'alpha0' (2) exclude each other",
        ),
        (["--vary", "legendre.map=linear,log", "--vary", "legendre.learned=true"], "option 'learned' needs map 'tanh'"),
        (["--vary", "batch"], "must be SETTING=VALUE,VALUE,..., not 'batch'"),
        (["--vary", "batch=32,"], "not 'batch=32,'"),
        (["--vary", "batch=32", "--vary", "batch=64"], "names 'batch' twice"),
    ],
)
def test_a_user_s_mistake_is_one_line(tmp_path, arguments, words):
    done = call(*arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arguments", "folder"), [([], "table5"), (["--quick"], "table5-quick")])
def test_a_quick_run_has_a_folder_of_its_own(tmp_path, monkeypatch, arguments, folder):
    whole = {"schema": 1, "source": "x", "quick": bool(arguments), "seeds": [0, 1, 2]}
    found = {**whole, "variants": [table5.summary({}, outcomes(PAPER), 3)]}
    monkeypatch.setattr(table5, "reproduce", lambda *_: found)
    monkeypatch.chdir(tmp_path)
    assert call(*arguments, "--no-plot").exit_code == 0
    assert [entry.name for entry in (tmp_path / "reproduce").iterdir()] == [folder]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    done = call("--out", tmp_path / "file" / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "is not a folder" in done.stderr
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = call("--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "no permission" in done.stderr


def test_one_command_at_a_time_in_a_folder(tmp_path):
    lock = files.lock_folder(tmp_path)
    done = call("--out", tmp_path)
    lock.close()
    assert done.exit_code == 2
    assert f"another process is working in {tmp_path}" in done.stderr


def test_a_disk_that_fills_while_the_report_is_written_leaves_whole_files(tiny, tmp_path, monkeypatch):
    found = table5.summary({}, outcomes(PAPER), 3)
    whole = {"schema": 1, "source": "x", "quick": True, "seeds": [0, 1, 2], "variants": [found]}
    monkeypatch.setattr(table5, "reproduce", lambda *_: whole)
    (tmp_path / "table5.json").write_text("old")
    replaced = []
    move = os.replace

    def fill(source, target):
        if len(replaced) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        replaced.append(move(source, target))

    monkeypatch.setattr(os, "replace", fill)
    done = call("--quick", "--out", tmp_path, "--no-plot")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith("No space left on device")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["table5.json", "table5.md"]
    assert (tmp_path / "table5.json").read_text() == "old"


def test_a_plot_that_is_asked_for_needs_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    done = call("--plot", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "pip install 'fastpe[plots]'" in done.stderr
    with pytest.raises(ModuleNotFoundError, match="need matplotlib"):
        plot.draw({}, "x")
