"""
A study on several machines
===========================

`fastpe.compare` can give its runs to Dask, whose workers may be on other machines. This example starts a scheduler and
two workers on this machine, and then shows the other way, without Dask: shards.
"""

# Needs: distributed
import os
import subprocess
import sys
import tempfile
import time
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
# Start a scheduler and the workers. On a cluster these are commands on several machines, or jobs of a queue, and all
# machines share the folder. (``cluster="local"`` starts workers on this machine without these lines.) Dask
# authenticates nobody by default: use it only in a network in which you trust everyone.

address = folder / "scheduler.json"
dask = [sys.executable, "-m", "dask"]
where = ["--scheduler-file", str(address)]
one_thread = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
local = ["--host", "127.0.0.1", "--no-dashboard"]
started = [subprocess.Popen([*dask, "scheduler", *where, *local], **quiet)]
while not address.exists():
    time.sleep(0.1)
for _ in range(2):
    started.append(
        subprocess.Popen([*dask, "worker", *where, *local, "--nthreads", "1", "--no-nanny"], env=one_thread, **quiet)
    )

# %%
# Now the study. `out` is a folder that all machines share.

ended = []


def listen(event):
    """Note which run has ended."""
    if hasattr(event, "outcome"):
        ended.append(event.job.name)


found = fastpe.compare(
    ["alibi", "nope"], ["bin_majority"], seeds=3, out=folder / "study", cluster=str(address), progress=listen, **small
)
print(len(ended), "runs ended, in this order:", *ended, sep="\n  ")

for process in reversed(started):
    process.terminate()
    process.wait()

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
