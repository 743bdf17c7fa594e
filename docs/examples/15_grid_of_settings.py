"""
A grid of settings
==================

A study can compare settings as well as encodings, or choose the best setting for each encoding. This example does both
from Python.
"""

# Needs: pandas
import itertools
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import fastpe

folder = Path(tempfile.mkdtemp())

# %%
# A grid is a dict: each entry of the study has a label, and below it an encoding and its own settings. All other
# settings are those of the task's recipe (``fastpe tasks sort`` prints it), unless they are given for all entries,
# as `epochs` is here. On the command line, ``--vary heads=1,4`` makes the same grid.

grid = {
    f"{encoding} heads={heads}": {"encoding": encoding, "heads": heads}
    for encoding, heads in itertools.product(("alibi", "rope"), (1, 4))
}
found = fastpe.compare(grid, ["sort"], seeds=3, baseline="rope heads=1", epochs=5, out=folder / "grid")
print(found)

# %%
# The results as a table, with a row for each entry and a column for each test length: means of the share of right
# answers over the seeds.

table = found.frame()
exact = table[table["metric"] == "exact"]
exact.pivot_table(index="encoding", columns="length", values="value", sort=False).round(3)

# %%
# The same as a figure. With three seeds, no difference can be significant; the page of the study says so.

figure = found.plot()

# %%
# A fair comparison gives every encoding a learning rate that suits it. `choose` trains all candidates on other seeds
# (here one), and the study uses the best one in validation. Several settings in `choose` form a grid: all
# combinations are tried.

tuned = fastpe.compare(
    ["alibi", "rope"], ["sort"], seeds=3, choose={"lr": [0.0003, 0.003]}, choose_seeds=1, epochs=5,
    out=folder / "tuned",
)  # fmt: skip
figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
for choice in tuned.summary["choosing"]["choices"]:
    print(choice["encoding"], "uses", choice["chosen"])
    rates = [candidate["settings"]["lr"] for candidate in choice["candidates"]]
    scores = [100 * candidate["score"] for candidate in choice["candidates"]]
    panel.plot(rates, scores, marker="o", label=choice["encoding"])
panel.set(xlabel="learning rate", ylabel="right answers in validation, %", xscale="log", ylim=(0, 103))
panel.legend()
plt.show()
