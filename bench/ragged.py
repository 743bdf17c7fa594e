"""Time batches whose sequences differ in length, or in which few targets count, and compare with PyTorch eager.

    python bench/ragged.py [ROUNDS]

copy    unique_copy in the protocol of Huang et al. 2025: 2 layers of 64, one head, 64 sequences of 4 to 102 positions
recall  MQAR: 2 layers of 64, one head, 64 sequences of 64 positions with 4 answers each, a vocabulary of 8,192 tokens

Each library runs in a separate process. The losses of the first steps must agree; then the libraries take turns.
PyTorch is timed in three ways: attention in three products, PyTorch's attention function, and `picked`, which applies
the head only to rows whose targets count. PyTorch pads sequences to the longest one of a batch.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from fastpe import TrainConfig, Transformer
from fastpe.doctor import probe
from fastpe.model.cost import sequence_flop
from fastpe.tasks.frame import Sequences
from fastpe.training.data import TrainingData
from fastpe.training.loop import optimiser
from fastpe.training.presets import preset

CASES = {
    "copy": preset("lacoco", "nope", task="unique_copy"),
    "recall": TrainConfig(
        "nope", task="mqar", train_length=64, lengths="fixed", width=64, hidden=256, layers=2, norm="layernorm",
        activation="gelu", causal=True, batch=64, samples=6400, weight_decay=0.01, clip=1.0, test_lengths=(64,),
    ),
}  # fmt: skip
WAYS = {"fastpe": ("fastpe",), "torch": ("three products", "own attention", "picked")}
_BATCHES, _LOSSES, _TURN = 8, 4, 0.25


def batches(config: TrainConfig) -> list[Sequences]:
    """The first batches of a training."""
    return list(islice(TrainingData(config).batches(1), _BATCHES))


def flop(config: TrainConfig) -> float:
    """Useful FLOPs of a step, averaged over batches: existing positions, and the head for targets that count."""
    found = [
        sequence_flop(config.model, int(n), int((weights > 0).sum()))
        for batch in batches(config)
        for n, weights in zip(_lengths(batch), _weights(batch), strict=True)
    ]
    return sum(found) / _BATCHES


def _lengths(batch: Sequences) -> np.ndarray:
    return np.full(len(batch.x), batch.x.shape[1]) if batch.lengths is None else np.asarray(batch.lengths)


def _weights(batch: Sequences) -> np.ndarray:
    return np.ones(batch.x.shape) if batch.weights is None else np.asarray(batch.weights)


def own_steps(config: TrainConfig, threads: int) -> Callable[[], float]:
    """A function that makes a step of fastpe on the next batch, in rotation."""
    adam, each = optimiser(config, Transformer(config.model)), cycle(batches(config))

    def step() -> float:
        x, y, weights, lengths = next(each)
        return adam.step(x, y, weights=weights, lengths=lengths, threads=threads)

    return step


def torch_steps(config: TrainConfig, way: str) -> Callable[[], float]:
    """The same in PyTorch, with sequences padded to the longest of the batch and targets that do not count ignored."""
    import torch

    from fastpe.benchmarks import peers

    model = Transformer(config.model)
    weights = peers.torch_weights(model)
    groups = [[value for value in weights.values() if (value.ndim > 1) == matrix] for matrix in (True, False)]
    decays = (config.weight_decay, 0.0)
    optimiser = torch.optim.AdamW(
        [{"params": own, "weight_decay": decay} for own, decay in zip(groups, decays, strict=True)], lr=config.lr
    )
    each = cycle([_tensors(batch) for batch in batches(config)])

    def step() -> float:
        x, y = next(each)
        if way == "picked":
            loss = _picked_loss(config, weights, x, y)
        else:
            outputs = peers.torch_forward(config.model, weights, {}, x, own=way == "own attention")
            loss = peers.torch_loss(config.model, outputs, y)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), config.clip)
        optimiser.step()
        return float(loss.item())

    return step


def _tensors(batch: Sequences) -> tuple[Any, Any]:
    import torch

    longest = int(_lengths(batch).max())
    x, y = (np.asarray(array)[:, :longest].astype(np.int64) for array in (batch.x, batch.y))
    return torch.tensor(x), torch.tensor(np.where(_weights(batch)[:, :longest] > 0, y, -100))


def _picked_loss(config: TrainConfig, weights: dict[str, Any], x: Any, y: Any) -> Any:
    """The loss with the head applied only to rows whose targets count. An identity head returns the hidden rows."""
    import torch
    from torch.nn.functional import cross_entropy, linear

    from fastpe.benchmarks import peers

    name = "embed.weight" if config.tied else "head.weight"
    through = {**weights, "head.weight": torch.eye(config.width), "head.bias": torch.zeros(config.width)}
    rows = peers.torch_forward(replace(config.model, tied=False), through, {}, x, own=True)[y >= 0]
    matrix = weights[name] if config.tied else weights[name].T
    return cross_entropy(linear(rows, matrix, weights.get("head.bias")), y[y >= 0])


def serve(library: str, threads: int) -> None:
    """Print the losses of the first steps of every case, then the seconds of a step for each line of input."""
    steps = {}
    for name, config in CASES.items():
        for way in WAYS[library]:
            if library == "torch":
                import torch

                torch.set_num_threads(threads)
                steps[f"{name} {way}"] = torch_steps(config, way)
            else:
                steps[f"{name} {way}"] = own_steps(config, threads)
    print(json.dumps({key: [step() for _ in range(_LOSSES)] for key, step in steps.items()}), flush=True)
    if library == "fastpe":
        steps["peak"] = probe.peak_call(threads)
    for line in sys.stdin:
        step, seconds, end = steps[line.strip()], [], time.perf_counter() + _TURN
        while len(seconds) < _BATCHES or time.perf_counter() < end:
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        whole = len(seconds) // _BATCHES * _BATCHES  # batches differ, so take the mean over whole rounds
        best = min(seconds) if line.strip() == "peak" else min(np.reshape(seconds[:whole], (-1, _BATCHES)).mean(axis=1))
        print(best, flush=True)


def compare(rounds: int, threads: int) -> None:
    """Time all cases, and print a row for each."""
    workers = {
        library: subprocess.Popen(
            [sys.executable, __file__, "--serve", library, str(threads)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for library in WAYS
    }  # fmt: skip
    losses = {}
    for worker in workers.values():
        assert worker.stdout is not None
        losses.update(json.loads(worker.stdout.readline()))
    asked = [("fastpe", "peak"), *((library, f"{c} {way}") for c in CASES for library in WAYS for way in WAYS[library])]
    best = {key: float("inf") for _, key in asked}
    for _ in range(rounds):
        for library, key in asked:
            best[key] = min(best[key], _ask(workers[library], key))
    peak = probe.PEAK_FLOP * threads / best["peak"]
    for name, config in CASES.items():
        _agree(name, losses)
        ours, useful = best[f"{name} fastpe"], flop(config)
        rate, seconds = useful / ours, [best[f"{name} {way}"] for way in WAYS["torch"]]
        cells = [name, threads, f"{1e3 * ours:.1f}", f"{rate / 1e9:.0f}", f"{rate / peak:.0%}"]
        cells += [f"{1e3 * each:.1f} ({each / ours:.2f})" for each in seconds]
        print("|", " | ".join(map(str, cells)), "|")
    for worker in workers.values():
        worker.kill()


def _ask(worker: subprocess.Popen[str], key: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{key}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def _agree(name: str, losses: dict[str, Sequence[float]]) -> None:
    for way in WAYS["torch"]:
        np.testing.assert_allclose(losses[f"{name} {way}"], losses[f"{name} fastpe"], rtol=1e-4, err_msg=name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        print("| batch | threads | ms | GFLOP/s | of the peak |", " | ".join(WAYS["torch"]), "|")
        print("|---" * 8 + "|")
        for count in (1, 2):
            compare(int(sys.argv[1]) if len(sys.argv) > 1 else 12, count)
