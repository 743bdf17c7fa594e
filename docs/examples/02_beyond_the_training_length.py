"""
Two encodings beyond the training length
========================================

Models with ALiBi and with RoPE learn to sort up to 12 symbols, and are tested on up to 36. Seven seeds are enough for a
verdict.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

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
# `found.rows` has one row for each run, length and metric. The metric of this task is the share of answers that are
# entirely right.

lengths = ["1-12", "13-24", "25-36"]
right = {
    (name, length): [
        row["value"] for row in found.rows if (row["encoding"], row["length"], row["metric"]) == (name, length, "exact")
    ]
    for name in ("alibi", "rope")
    for length in lengths
}

figure, panel = plt.subplots(figsize=(7, 3.8), layout="constrained")
panel.axvspan(0.5, 2.4, color="0.93")
panel.text(0.55, 4, "longer than in training", color="0.35")
for name in ("alibi", "rope"):
    values = np.array([right[name, length] for length in lengths], float) * 100
    (line,) = panel.plot(lengths, values.mean(axis=1), marker="o", label=name)
    panel.plot(lengths, values, color=line.get_color(), alpha=0.25, linewidth=0.8)
panel.set(xlabel="length of the input", ylabel="right answers, %", ylim=(-3, 103), xlim=(-0.3, 2.4))
panel.legend(title="mean, and each seed")

# %%
# The verdicts compare ALiBi with RoPE on the same seeds. "Not told apart" would mean that these seeds show no
# difference, not that there is none.

for each in found.summary["comparisons"]:
    difference = each["difference"]
    print(
        f"{each['encoding']} - {each['baseline']} at {each['length']}: {each['verdict']}, "
        f"{difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )

# %%
# The study folder has a page, ``report.html``, with the same results, and tables for other programs.

print(sorted(path.name for path in (folder / "study").iterdir()))
plt.show()
