"""Digests of what compiled code computes, to see whether a change of the source changed a bit.

    python tests/support/digests.py > before.txt        # then edit
    python tests/support/digests.py | diff before.txt -

Each line is the name of a case and the first digits of the SHA-256 of its results: outputs and gradients of
`fastpe.attention` with every slot, alone and in pairs with a bias, and the gradients of one training step of models.
With a cold compile cache this takes minutes.
Digests differ between CPU types and between versions of Numba.
"""

import hashlib
import sys

import numpy as np
from attention_problems import SLOTS, problem
from network_problems import problem as network_problem

import fastpe
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

ENCODINGS = (
    "nope", "wavelet", "alibi", "rope", "t5", "fox", "cope", "dape", "path", "shaw", "xpos", "selective_rope", "pope",
    "alibi+path", "rope+dape", "fox+path",
)  # fmt: skip
OPTIONS = {
    "causal": {"causal": True}, "window": {"window": 20}, "softcap": {"softcap": 3.0},
    "lengths": {"lengths": np.array([60, 130])}, "dropout": {"dropout": 0.2, "dropout_seed": 3},
    "sinks": {"sinks": np.array([0.5, -1.0])},
}  # fmt: skip


def digest(arrays):
    """Of a dict of arrays, by name."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


def call_digest(arguments, **options):
    """Of the outputs and gradients of one call."""
    q, k, v = (arguments.pop(name) for name in "qkv")
    out, pullback = fastpe.attention_vjp(q, k, v, **arguments, **options)
    return digest({"out": out} | pullback(np.ones_like(out)))


def cases():
    """Names, and functions that give a digest."""
    yield from _call_cases(np.float32)
    yield from _call_cases(np.float64)
    for encoding in ENCODINGS:
        yield f"step {encoding}", lambda encoding=encoding: step_digest(encoding, "float32")


def _call_cases(dtype):
    label = np.dtype(dtype).name
    for name, options in OPTIONS.items():
        own = {key: value.astype(dtype) if key == "sinks" else value for key, value in options.items()}
        yield f"{label} {name}", lambda own=own: call_digest(_problem((), dtype), **own)
    for slot in SLOTS:
        for names in ((slot,), (slot, "bias")) if slot != "bias" else ((slot,),):
            label_of = f"{label} {'+'.join(names)}"
            yield label_of, lambda names=names: call_digest(_problem(names, dtype), causal=True)
    yield f"{label} network", lambda: call_digest(_network(dtype), causal=True)
    yield f"{label} reflections", lambda: call_digest(_reflected(dtype), causal=True)


def _problem(names, dtype):
    return problem(np.random.default_rng(5), names, n=150, m=150, d=16, dtype=dtype)


def _network(dtype):
    return network_problem(np.random.default_rng(5), n=70, dtype=dtype)


def _reflected(dtype):
    return problem(np.random.default_rng(5), ("reflectors", "reflect"), n=150, m=150, d=16, dtype=dtype)


def step_digest(encoding, dtype):
    """Of the gradients of one training step."""
    config = ModelConfig(encoding, width=32, heads=2, hidden=48, layers=2, train_length=40, causal=True, dtype=dtype)
    model = Transformer(config)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 40)).astype(dtype)
    loss, grads = model.loss_and_grads(x, x[:, ::-1].copy())
    return digest({"loss": np.float64(loss)} | dict(grads))


def main():
    """Print all cases."""
    chosen = sys.argv[1:]
    for name, run in cases():
        if not chosen or any(part in name for part in chosen):
            try:
                print(name, run(), flush=True)
            except Exception as error:
                print(name, "failed:", type(error).__name__, str(error)[:90], flush=True)


if __name__ == "__main__":
    main()
