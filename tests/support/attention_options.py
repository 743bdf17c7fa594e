"""Arguments of attention by name."""

import numpy as np

from fastpe.functional.slots import CAUSAL, REFUSED, SLOTS, sample

SETTINGS = (
    "causal", "window", "lengths", "both_lengths", "mask", "one_mask", "head_mask", "added", "spans", "query_start",
    "one_start", "softcap", "rectify", "scale", "scales", "return_lse", "tolerance", "half", "dropout", "wide_offset",
)  # fmt: skip
OPTIONS = (
    *SETTINGS,
    *(name for name in SLOTS if name not in ("index", "theta", "reflectors", "reflect") and "mlp" not in name),
)


def qkv(rng, b=2, h=4, hk=2, n=1, m=70, d=16, dtype=np.float32):
    sizes = (b, h, n, d), (b, hk, m, d), (b, hk, m, d)
    return tuple(rng.standard_normal(size).astype(dtype) for size in sizes)


def options(rng, names, b, h, n, m, d, dtype):
    """Arguments of attention by the names above. Sizes of slots that may differ, axes B among them, are random."""
    if "one_start" in names:
        names = [name for name in names if name != "query_start"]
    if "polar" in names:
        names = [name for name in names if name not in REFUSED["polar"]]
    settings = _settings(rng, b, h, n, m, dtype)
    longest = max(n, m + n + 3 if {"query_start", "one_start"} & set(names) else m)
    pairs = d if "polar" in names else rng.choice([max(1, d // 4), d // 2])
    given = {}
    for name in names:
        if name in settings:
            given |= settings[name]
            continue
        sizes = {
            "H": h, "H1": rng.choice([1, h]), "N": n, "M": m, "D": d, "Dv": d, "L": longest, "V": 6, "R": pairs,
            "L1": rng.choice([1, longest]), "T": rng.choice([3, 5, 9, 2 * m - 1]), "P": rng.choice([5, 30]), "b": 2,
        }  # fmt: skip
        led = b if SLOTS[name].batched and rng.random() < 0.5 else None
        given[name] = sample(name, sizes, rng, led, dtype)
        if name == "values":  # of these queries and keys, or of all positions
            square = {"N": longest, "M": longest} if rng.random() < 0.5 else {}
            given["index"] = sample("index", sizes | square, rng).astype(rng.choice([np.int64, np.int16]))
        if name in CAUSAL:
            given["causal"] = True
    return given


def _settings(rng, b, h, n, m, dtype):
    added = np.where(rng.random((b, h, 1, m)) < 0.6, rng.standard_normal(m), -np.inf).astype(dtype)
    return {
        "causal": {"causal": True}, "window": {"window": 9}, "lengths": {"lengths": rng.integers(0, m + 1, b)},
        "both_lengths": {"lengths": (rng.integers(0, n + 1, b), rng.integers(0, m + 1, b))},
        "mask": {"mask": rng.random((b, 1, n, m)) < 0.6}, "one_mask": {"mask": rng.random(m) < 0.6},
        "head_mask": {"mask": rng.random((h, 1, m)) < 0.6}, "added": {"mask": added},
        "spans": {"spans": np.sort(rng.integers(-2, m + 3, (b, n, 2)), axis=-1)},
        "query_start": {"query_start": rng.integers(0, m, b)}, "one_start": {"query_start": 3},
        "softcap": {"softcap": 2.0}, "rectify": {"rectify": True}, "scale": {"scale": 0.3},
        "scales": {"scale": rng.random(h)}, "return_lse": {"return_lse": True}, "tolerance": {"tolerance": 0.0},
        "half": {"pairs": "half"}, "dropout": {"dropout": 0.25, "dropout_seed": int(rng.integers(99))},
        "wide_offset": {"key_offset": rng.standard_normal((h, m)) + 1e4},
    }  # fmt: skip
