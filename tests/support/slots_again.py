"""Slots of calls that are made again."""

import numpy as np


def slot_of(rng, name, n, m=130, b=2, h=4, d=24):
    """Such slots, of numbers that differ from call to call."""

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    starts, offsets = np.array([m - n, 3]), normal(h, 9)
    angles, dropped = 9 * rng.random((1, m + 2, d // 2)), {"dropout": 0.3, "dropout_seed": int(rng.integers(2**62))}
    return {
        "gain": {"gain": offsets, "rectify": True}, "gain of samples": {"gain": normal(b, h, 2 * m - 1)},
        "gain from starts": {"gain": offsets, "query_start": starts, "causal": True},
        "vectors of keys": {"rel_key": normal(1, 9, d), "rel_gain": normal(h, 11, d)},
        "vectors of queries": {"rel_query": normal(h, 9, d), "key_bias": normal(h, d), "softcap": 3.0},
        "vectors of values": {"rel_value": normal(h, 2 * m - 1, d)},
        "values": {"values": normal(h, 5), "index": rng.integers(0, 5, (n, m)), "scale": 0.3},
        "scores": {"scores": normal(b, h, n, m), "bias": offsets, "mask": rng.random((b, 1, n, m)) < 0.7},
        "offsets of keys": {"key_offset": 1e4 * rng.random((b, h, m)), "sinks": normal(h), "causal": True},
        "slopes": {"key_slope": normal(1, m), "query_slope": normal(b, h, n), "lengths": np.array([m, 9])},
        "counts": {"counts": normal(1, 7, d), "causal": True},
        "angles": {"angles": angles[:, :m], "pairs": "half"},
        "angles of heads": {"angles": 9 * rng.random((b, h, m, 5))},
        "angles from starts": {"angles": angles, "query_start": starts, "rel_key": normal(1, 9, d)},
        "angles and gains of channels": {"angles": angles[:, :m], "rel_gain": normal(h, 11, d)},
        "factors": {"row_scale": normal(b, h, n), "gain": offsets, "scale": offsets[:, 0].astype(np.float64)},
        "factors of all": {"row_scale": normal(1, n), "angles": angles[:, :m]},
        "growth": {"growth": 0.1 * rng.random((m, d // 2)), "angles": angles[:, :m], "causal": True},
        "growth alone": {"growth": 9 * rng.random((m, d // 3)), "causal": True, "pairs": "half"},
        "growth and others": {
            "growth": 0.1 * rng.random((m, d // 2)), "row_scale": normal(b, h, n), "causal": True,
            "rotors": normal(1, m, d // 2, 2, 2),
        },
        "maps": {"rotors": normal(1, m, d // 2, 2, 2)},
        "maps of heads": {"rotors": normal(b, h, 1, d // 8, 8, 8), "angles": angles[:, :m], "pairs": "half"},
        "maps of odd blocks": {
            "rotors": normal(1, m + 2, d // 3, 3, 3), "query_start": starts, "row_scale": normal(1, n),
        },
        "maps and others": {"rotors": normal(b, 1, m, d // 4, 4, 4), "gain": offsets, "lengths": np.array([m, 9])},
        "radii": {"polar": normal(1, d), "angles": 9 * rng.random((1, m, d))},
        "radii of heads": {"polar": normal(b, h, d), "bias": offsets, "causal": True},
        "radii from starts": {
            "polar": normal(1, 1, d), "angles": 9 * rng.random((b, 1, m + 2, d)), "query_start": starts,
            "gain": offsets, "row_scale": normal(b, 1, n),
        },
        "dropout": dropped, "dropout of a window": {**dropped, "window": 90, "softcap": 2.0, "scale": 0.3},
        "dropout and others": {
            **dropped, "bias": offsets, "sinks": normal(h), "lengths": np.array([m, 9]), "angles": angles[:, :m],
        },
    }[name]  # fmt: skip


SLOT_NAMES = (
    "gain", "gain of samples", "gain from starts", "vectors of keys", "vectors of queries", "vectors of values",
    "values", "scores", "offsets of keys", "slopes", "counts", "angles", "angles of heads", "angles from starts",
    "angles and gains of channels", "factors", "factors of all", "growth", "growth alone", "growth and others", "maps",
    "maps of heads", "maps of odd blocks", "maps and others", "radii", "radii of heads", "radii from starts", "dropout",
    "dropout of a window", "dropout and others",
)  # fmt: skip
OF_HEADS = {"angles of heads", "maps of heads", "radii of heads"}
WIDENED = {
    "angles and gains of channels", "growth", "growth and others", "maps", "maps of heads", "maps of odd blocks",
    "maps and others",
}  # fmt: skip
