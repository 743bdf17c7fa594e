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
# `fastpe.compare` trains every encoding with the same seeds and compares the results. The settings are those of the
# task's recipe, a small model that learns to sort (``fastpe tasks sort`` prints it); here with fewer epochs. The runs
# are stored in a folder, so that the same call continues after an interruption. Here the folder is a temporary one.

folder = Path(tempfile.mkdtemp())
found = fastpe.compare(["rope", "alibi"], ["sort"], seeds=7, baseline="rope", epochs=8, out=folder / "study")
print(found)

# %%
# `found.plot` draws the share of answers that are entirely right: a line for the mean of each encoding, a thin line for
# each seed. The lengths beyond training are shaded.

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
