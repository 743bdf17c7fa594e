"""
A study's results with pandas
=============================

The results of a study as a data frame: one row for each run, length and metric. This example makes a small study, and
computes means and paired differences.
"""

# Needs: pandas
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import fastpe

# %%
# Settings of a small model that learns many tasks. Training ends early once all validation answers are right.

small = {
    "causal": True, "width": 32, "hidden": 128, "layers": 2, "heads": 2, "norm": "layernorm", "final_norm": True,
    "activation": "gelu", "lr": 3e-3, "warmup": 50, "decay": "linear", "weight_decay": 0.01, "clip": 1.0,
    "samples": 3200, "epochs": 8, "validation": 256, "stop_solved": True, "test_sequences": 300,
}  # fmt: skip

# %%
# A small study: three encodings, two tasks, three seeds. The tasks differ in what they need: models that count
# generalise beyond the training length, and models that use the order do not.

folder = Path(tempfile.mkdtemp()) / "study"
found = fastpe.compare(
    ["nope", "alibi", "rope"], ["bin_majority", "repeat_copy"], seeds=3, out=folder, train_length=12, **small
)

# %%
# The table. It has the columns of ``results.csv``, which every study writes. `failed` is empty unless a run failed;
# `identity` names the run's settings, code, versions and CPU.

table = found.frame()
table[["task", "encoding", "seed", "length", "metric", "value"]].head()

# %%
# Means and standard deviations over the seeds:

exact = table[table["metric"] == "exact"]
summary = exact.pivot_table(index=["task", "encoding"], columns="length", values="value", aggfunc=["mean", "std"])
summary.round(3)

# %%
# Differences are paired: runs with the same seed have the same data. So subtract the baseline seed by seed, before
# taking means.

wide = exact.pivot_table(index=["task", "length", "seed"], columns="encoding", values="value")
paired = wide.sub(wide["nope"], axis=0).drop(columns="nope").groupby(level=["task", "length"]).agg(["mean", "sem"])
paired.round(3)

# %%
# A figure with one panel for each task. `found.plot()` draws a similar one:

figure, panels = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for panel, (task, rows) in zip(panels, exact.groupby("task"), strict=True):
    means = rows.pivot_table(index="length", columns="encoding", values="value") * 100
    means = means.loc[sorted(means.index, key=lambda length: int(length.split("-")[0]))]
    panel.axvspan(0.5, 2.3, color="0.93")
    for encoding in means:
        panel.plot(means.index, means[encoding], marker="o", label=encoding)
    panel.set(title=task, xlabel="length of the input", ylim=(-3, 103), xlim=(-0.3, 2.3))
panels[0].set_ylabel("right answers, %")
panels[0].legend()
plt.show()
