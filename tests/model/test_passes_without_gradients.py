"""Passes that need no gradients: layers share memory, and logits are computed by rows. Results keep their bits."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.kernels.model import memory
from fastpe.model import passes
from fastpe.training import evaluation
from fastpe.training.text_metrics import losses

PLAIN = ModelConfig(
    "sinusoidal", width=16, heads=2, hidden=24, layers=3, causal=True, vocabulary=23, train_length=50, norm="layernorm",
    final_norm=True, activation="gelu",
)  # fmt: skip
LLAMA = replace(PLAIN, encoding="rope", norm="rmsnorm", activation="swiglu", bias=False, tied=True)
CONFIGS = {
    "plain": PLAIN,
    "without norms": replace(PLAIN, norm="none", final_norm=False, activation="relu"),
    "without residual": replace(PLAIN, residual=False),
    "rope": LLAMA,
    "sum": replace(PLAIN, encoding="sinusoidal+alibi"),
    "float64": replace(LLAMA, dtype="float64"),
    "bfloat16": replace(LLAMA, precision="bfloat16"),
    "fox": replace(LLAMA, encoding="fox"),
    "selective_rope": replace(LLAMA, encoding="selective_rope"),
    "cope": replace(LLAMA, encoding="cope"),
    "path": replace(LLAMA, encoding="path"),
    "dape": replace(LLAMA, encoding="dape"),
    "numbers": replace(PLAIN, vocabulary=None, tied=False),
    "optional parts": replace(
        LLAMA, heads=4, key_heads=2, qk_norm="head", norm_placement="both", sinks=True, logit_softcap=3.0
    ),
    "parallel": replace(LLAMA, heads=4, qk_norm="all", parallel=True, embedding_scale=3.0),
}
B, N = 5, 250
LENGTHS = np.array([250, 1, 200, 249, 37])


def batch_of(config):
    rng = np.random.default_rng(0)
    if config.vocabulary is None:
        return rng.standard_normal((2, B, N))
    return rng.integers(0, config.vocabulary, (2, B, N))


def results(model, threads=1):
    """Everything that passes without gradients compute, as arrays."""
    x, y = batch_of(model.config)
    some = np.random.default_rng(1).random(x.shape) < 0.7
    found = [
        model(x, threads=threads), model(x, lengths=LENGTHS, threads=threads),
        np.array(model.loss(x, y, threads=threads)),
        np.array(model.loss(x, y, weights=some, lengths=LENGTHS, threads=threads)),
    ]  # fmt: skip
    if model.config.vocabulary:
        found += [losses(model, x, y, threads=threads), losses(model, x, y, LENGTHS, threads)]
        found += [model.generate(x[0], 9, seed=1), model.generate(x[0, :40], 9, cache=False, threads=threads)]
    return found


@pytest.fixture
def memory_of_training(monkeypatch):
    """Calling this gives models that are made afterwards the memory layout of a training step in all passes."""

    def arena_layout(*sizes, backward, rows=0, whole=memory.arena_layout):
        return whole(*sizes, backward=True, rows=rows)

    return lambda: monkeypatch.setattr(memory, "arena_layout", arena_layout)


@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_those_with_the_memory_layout_of_training(name, memory_of_training):
    model, other = Transformer(CONFIGS[name]), Transformer(CONFIGS[name])
    found = results(model)
    memory_of_training()
    for ours, expected in zip(found, results(other), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("name", ["plain", "rope", "bfloat16"])
def test_results_do_not_depend_on_the_number_of_threads(name):
    model = Transformer(CONFIGS[name])
    for threads in (2, 3):
        for ours, expected in zip(results(model, threads), results(model), strict=True):
            np.testing.assert_array_equal(ours, expected)


def collected(model, x, wanted, **options):
    """The blocks of `logits_by_rows`, and the logits together."""
    rows, found = [], []
    model.logits_by_rows(x, wanted, lambda own, logits: (rows.append(own), found.append(logits.copy())), **options)
    return rows, np.concatenate(found)


@pytest.mark.parametrize(("threads", "together"), [(1, 9), (2, 9), (3, 2)])
def test_logits_by_rows_are_those_of_a_call(threads, together, monkeypatch):
    monkeypatch.setattr(passes, "_LOGITS", 0)  # as for a large vocabulary: as few rows as possible
    monkeypatch.setattr(passes, "_AT_ONCE", together * N * PLAIN.width)
    model, (x, _) = Transformer(PLAIN), batch_of(PLAIN)
    expected = model(x, lengths=LENGTHS)
    within = np.arange(N) < LENGTHS[:, None]
    for wanted in (within, within & (np.random.default_rng(2).random(x.shape) < 0.3)):
        rows, logits = collected(model, x, wanted, lengths=LENGTHS, threads=threads)
        assert [own.start for own in rows] == [0, *(own.stop for own in rows[:-1])]
        assert rows[-1].stop == wanted.sum()
        assert len(rows) > 1
        assert max(own.stop - own.start for own in rows) <= memory.LOSS_ROWS
        np.testing.assert_array_equal(logits, expected[wanted])


def test_logits_of_one_sequence_by_rows():
    model, (x, _) = Transformer(LLAMA), batch_of(LLAMA)
    np.testing.assert_array_equal(collected(model, x[0], np.arange(N) == 7)[1][0], model(x[0])[7])
    model.logits_by_rows(x[0], np.zeros(N, bool), lambda rows, logits: pytest.fail("there are no rows"))


def test_logits_by_rows_refuse_other_positions():
    model, (x, _) = Transformer(PLAIN), batch_of(PLAIN)
    for wanted in (np.ones(N, bool), np.ones((B, N)), None):
        with pytest.raises(ValueError, match=r"wanted must be booleans of shape \(5, 250\)"):
            model.logits_by_rows(x, wanted, print)
    with pytest.raises(ValueError, match="wanted must be False beyond the lengths"):
        model.logits_by_rows(x, np.ones((B, N), bool), print, lengths=LENGTHS)
    with pytest.raises(TypeError, match="use must be a function"):
        model.logits_by_rows(x, np.ones((B, N), bool), [])
    with pytest.raises(ValueError, match="must have a vocabulary"):
        Transformer(CONFIGS["numbers"]).logits_by_rows([1.0], [True], print)


def test_cross_entropy_does_not_depend_on_the_rows_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    logits, tokens = rng.standard_normal((301, 65)).astype(np.float32) * 9, rng.integers(0, 65, 301)
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    expected = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(301), tokens]
    for some in (1, 650, 2**16):
        monkeypatch.setattr(evaluation, "_IN_CACHE", some)
        np.testing.assert_array_equal(evaluation.surprise(logits, tokens), expected)


def memory_of(config, use):
    """Bytes of scratch memory that a call of `use` needs."""
    model = Transformer(config)
    before = model.nbytes
    use(model)
    return model.nbytes - before


def test_memory_depends_neither_on_the_number_of_layers_nor_on_the_vocabulary():
    (x, y), deep, wide = batch_of(PLAIN), replace(PLAIN, layers=9), replace(PLAIN, vocabulary=10_000)
    for use in (
        lambda model: model(x, threads=1), lambda model: model.loss(x, y, threads=1),
        lambda model: losses(model, x, y, threads=1),
    ):  # fmt: skip
        needed = memory_of(PLAIN, use)
        assert memory_of(deep, use) == needed
        assert memory_of(wide, use) - needed <= memory.LOSS_ROWS * (10_000 - 23 + 16) * 4


@pytest.mark.parametrize("qk_norm", [None, "head"])
def test_layers_share_the_transient_memory_of_a_prompt(qk_norm):
    """Each further layer needs 4 (3 + 2) C bytes for a cached position, and no memory for the 384 that pass through."""
    length = 4000
    sizes = [
        Transformer(replace(LLAMA, layers=layers, qk_norm=qk_norm))._writer(length, 384).scratch.workspaces.nbytes
        for layers in (3, 4)
    ]
    assert 0 <= sizes[1] - sizes[0] - 4 * 5 * LLAMA.width * length <= 1024


PEAK = """
import json, os, re
import numpy as np
from fastpe import ModelConfig, Transformer
from fastpe.training.text_metrics import losses
def bytes_of(name):
    return 1024 * int(re.search(name + r":\\s*(\\d+) kB", open("/proc/self/status").read())[1])
config = ModelConfig(
    "rope", {"pairs": "half"}, width=576, heads=9, layers=30, hidden=1536, causal=True, activation="swiglu",
    norm="rmsnorm", final_norm=True, bias=False, tied=True, vocabulary=49152, train_length=8192,
)
model = Transformer(config)
tokens, needed = np.random.default_rng(0).integers(0, 49152, 2049), []
for length in (64, 256, 2048):
    before = bytes_of("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # VmHWM starts again
    losses(model, tokens[None, :length], tokens[None, 1 : length + 1], threads=1)
    needed.append(bytes_of("VmHWM") - before)
print(json.dumps(needed))
"""


@pytest.mark.full("takes a minute")
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read from /proc")
def test_a_model_of_135_million_parameters_needs_a_tenth_of_a_mebibyte_for_each_token():
    """And once for all tokens a transposed head and the logits of a block, 150 MiB."""
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, check=True)
    _, some, more = json.loads(run.stdout)
    assert more - some <= 0.1 * 2**20 * (2048 - 256)
    assert more <= 2**20 * (150 + 0.1 * 2048)
