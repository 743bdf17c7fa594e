"""Arguments of attention by name."""

import numpy as np

from fastpe.functional.slots import REFUSED

OPTIONS = (
    "causal", "window", "lengths", "both_lengths", "bias", "clipped_bias", "led_bias", "mask", "one_mask", "head_mask",
    "added", "spans", "query_start", "one_start", "softcap", "rectify", "scale", "scales", "sinks", "return_lse",
    "tolerance", "rel_gain", "rel_key", "rel_query", "rel_value", "key_bias", "gain", "values", "led_values", "scores",
    "angles", "own_angles", "growth", "half", "dropout", "key_offset", "wide_offset", "key_slope", "query_slope",
    "row_scale", "rotors", "one_rotor", "polar", "counts", "one_counts",
)  # fmt: skip


def qkv(rng, b=2, h=4, hk=2, n=1, m=70, d=16, dtype=np.float32):
    sizes = (b, h, n, d), (b, hk, m, d), (b, hk, m, d)
    return tuple(rng.standard_normal(size).astype(dtype) for size in sizes)


def options(rng, names, b, h, n, m, d, dtype):
    """Arguments of attention by the names above."""

    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    if "one_start" in names:
        names = [name for name in names if name != "query_start"]
    most = max(n, m) + n + (m + 3 if {"query_start", "one_start"} & set(names) else -n)
    drawn = {
        "rel_gain": {"rel_gain": normal(h, 5, d)}, "rel_key": {"rel_key": normal(1, 2 * m - 1, d)},
        "rel_query": {"rel_query": normal(b, h, 3, d)}, "rel_value": {"rel_value": normal(1, 7, d)},
        "key_bias": {"key_bias": normal(h, d)}, "gain": {"gain": normal(h, 9)},
        "values": {"values": normal(h, 6), "index": rng.integers(0, 6, (n, m))},
        "led_values": {"values": normal(b, h, 6), "index": rng.integers(0, 6, (1, most, most), np.int16)},
        "scores": {"scores": normal(h, n, m)}, "angles": {"angles": normal(1, most, d // 2)},
        "own_angles": {"angles": rng.standard_normal((b, h, most, max(1, d // 4)))},
        "growth": {"growth": rng.standard_normal((most, d // 2)) / 4, "causal": True}, "half": {"pairs": "half"},
        "key_offset": {"key_offset": normal(b, 1, m)}, "wide_offset": {"key_offset": rng.standard_normal((h, m)) + 1e4},
        "key_slope": {"key_slope": normal(h, m) / m}, "query_slope": {"query_slope": normal(b, h, n) / m},
        "row_scale": {"row_scale": normal(1, n)},
        "polar": {"polar": normal(h, d)},
        "rotors": {"rotors": normal(h, most, d // 2, 2, 2)}, "one_rotor": {"rotors": normal(b, 1, 1, 1, d, d) / 4},
        "counts": {"counts": normal(b, h, 30, d), "causal": True},
        "one_counts": {"counts": normal(1, 5, d), "causal": True},
        "dropout": {"dropout": 0.25, "dropout_seed": int(rng.integers(99))}, "scales": {"scale": rng.random(h)},
    }  # fmt: skip
    others = {
        "causal": ("causal", True), "window": ("window", 9), "lengths": ("lengths", rng.integers(0, m + 1, b)),
        "both_lengths": ("lengths", (rng.integers(0, n + 1, b), rng.integers(0, m + 1, b))),
        "bias": ("bias", rng.standard_normal((h, 2 * m - 1)).astype(dtype)),
        "clipped_bias": ("bias", rng.standard_normal((1, h, 5)).astype(dtype)),
        "led_bias": ("bias", rng.standard_normal((b, h, 7)).astype(dtype)),
        "mask": ("mask", rng.random((b, 1, n, m)) < 0.6), "one_mask": ("mask", rng.random(m) < 0.6),
        "head_mask": ("mask", rng.random((h, 1, m)) < 0.6),
        "added": ("mask", np.where(rng.random((b, h, 1, m)) < 0.6, rng.standard_normal(m), -np.inf).astype(dtype)),
        "spans": ("spans", np.sort(rng.integers(-2, m + 3, (b, n, 2)), axis=-1)),
        "query_start": ("query_start", rng.integers(0, m, b)), "one_start": ("query_start", 3),
        "softcap": ("softcap", 2.0), "rectify": ("rectify", True), "scale": ("scale", 0.3),
        "sinks": ("sinks", rng.standard_normal(h).astype(dtype)), "return_lse": ("return_lse", True),
        "tolerance": ("tolerance", 0.0),
    }  # fmt: skip
    drawn |= {name: dict([each]) for name, each in others.items()}
    given = {}
    for name in names:
        given |= drawn[name]
    if "polar" in given:
        given = {name: value for name, value in given.items() if name not in REFUSED["polar"]}
        if "angles" in given:
            shape = *given["angles"].shape[:-1], d
            given["angles"] = rng.standard_normal(shape).astype(given["angles"].dtype)
    if "growth" in given and "angles" in given:
        given["growth"] = given["growth"][:, : given["angles"].shape[-1]]
    return given
