"""
A study's results with pandas
=============================

Every study writes ``results.csv``: one row for each run, length and metric. This example makes a small study and reads
the file into a data frame.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import fastpe

# %%
# A small study: three encodings, two tasks, four seeds. The tasks differ in what they need: counting generalises beyond
# the training length, order does not.

folder = Path(tempfile.mkdtemp()) / "study"
found = fastpe.compare(
    ["nope", "alibi", "rope"], ["majority", "repeat_copy"], seeds=4, out=folder,
    causal=True, width=32, hidden=128, layers=2, heads=2, train_length=12, samples=9600, epochs=1, test_sequences=200,
)  # fmt: skip

# %%
# The table. `failed` is empty unless a run failed; `identity` names the run's settings, code, versions and CPU.

table = pd.read_csv(folder / "results.csv")
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
# A figure with one panel for each task:

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
