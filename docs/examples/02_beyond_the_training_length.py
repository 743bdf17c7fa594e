"""
Two encodings beyond the training length
========================================

Models with ALiBi and with RoPE learn to sort up to 12 symbols, and are tested on up to 36. Seven seeds are enough for a
verdict.
"""

import tempfile
from pathlib import Path

import fastpe

# %%
# Settings of a small model that learns many tasks. Training ends early once all validation answers are right.

small = {
    "causal": True, "width": 32, "hidden": 128, "layers": 2, "heads": 2, "norm": "layernorm", "final_norm": True,
    "activation": "gelu", "lr": 3e-3, "warmup": 50, "decay": "linear", "weight_decay": 0.01, "clip": 1.0,
    "samples": 3200, "epochs": 12, "validation": 256, "stop_solved": True, "test_sequences": 300,
}  # fmt: skip

# %%
# `fastpe.compare` trains every encoding with the same seeds and compares the results. The runs are stored in a folder,
# so that the same call continues after an interruption. Here the folder is a temporary one.

folder = Path(tempfile.mkdtemp())
found = fastpe.compare(
    ["rope", "alibi"],
    {"sort": {"options": {"symbols": 40}}},
    seeds=7,
    baseline="rope",
    out=folder / "study",
    train_length=12,
    **small,
)
print(found)

# %%
# `found.plot` draws the share of answers that are entirely right: a line for the mean of each encoding, a thin line for
# each seed. Lengths beyond the training length are shaded.

figure = found.plot()

# %%
# The verdicts compare ALiBi with RoPE on the same seeds. "Inconclusive" would mean that these seeds show no
# difference, not that there is none.

for each in found.summary["comparisons"]:
    difference = each["difference"]
    print(
        f"{each['encoding']} - {each['baseline']} at {each['length']}: {each['verdict']}, "
        f"{difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )

# %%
# The study folder has a page, ``report.html``, with the same results, and tables for other programs.
# ``fastpe.load_study(folder)`` reads the study again.

print(sorted(path.name for path in (folder / "study").iterdir()))
