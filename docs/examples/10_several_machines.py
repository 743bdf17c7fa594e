"""
A study on several machines
===========================

`fastpe.compare` can give its runs to Dask, which starts workers on other machines. This example starts two workers on
this machine, and then shows the other way, without Dask: shards.
"""

# Needs: distributed
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import fastpe

small = {
    "causal": True, "width": 32, "hidden": 64, "layers": 1, "heads": 2, "norm": "layernorm",
    "final_norm": True, "lr": 3e-3, "train_length": 8, "samples": 6400, "epochs": 1,
    "test_sequences": 100,
}  # fmt: skip
folder = Path(tempfile.mkdtemp())

# %%
# ``cluster="local"`` starts workers here. On a real cluster it is the address of a scheduler or a scheduler file, and
# `out` is a folder that all machines share. Dask authenticates nobody by default: use it only in a network in which you
# trust everyone.

ended = []


def listen(event):
    """Note which run has ended."""
    if hasattr(event, "outcome"):
        ended.append(event.job.name)


found = fastpe.compare(
    ["alibi", "nope"],
    ["bin_majority"],
    seeds=3,
    out=folder / "study",
    cluster="local",
    workers=2,
    progress=listen,
    **small,
)
print(len(ended), "runs ended, in this order:", *ended, sep="\n  ")

# %%
# The results have the same bits on any number of workers, as long as the CPUs and versions are the same. fastpe refuses
# workers with other versions.

rows = [row for row in found.rows if row["metric"] == "exact"]
figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
for place, encoding in enumerate(("alibi", "nope")):
    own = [row for row in rows if row["encoding"] == encoding]
    lengths = [row["length"] for row in own]
    panel.plot(lengths, [100 * row["value"] for row in own], "os"[place], label=encoding, alpha=0.7)
panel.axhline(50, color="black", linewidth=0.8, linestyle="dotted")
panel.set(xlabel="length of the input", ylabel="right answers, %", ylim=(0, 103))
panel.legend(title="one point for each seed")

# %%
# Without Dask: every job of an array makes one shard, a part of the runs, in its own folder, and a last job merges
# them. In the shell: ``fastpe compare ... --shard 1/2 --out part1``, and then ``fastpe merge part1 part2 --out whole``.

for number in (1, 2):
    fastpe.compare(
        ["alibi", "nope"], ["bin_majority"], seeds=2, out=folder / f"part{number}", shard=(number, 2), **small
    )
print([len(list((folder / f"part{number}" / "runs").iterdir())) for number in (1, 2)], "runs in the two shards")
plt.show()
