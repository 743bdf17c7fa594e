"""
What theory says before training
================================

Some properties of an encoding follow from its formula. `fastpe.theory` computes them without training, and says for
each number whether it is exact, certified by bounds, or an estimate.
"""

import matplotlib.pyplot as plt

import fastpe

# %%
# The page of an encoding is a dictionary of records. How far can a causal model with ALiBi read? ``window.2^-24.5`` is
# the distance beyond which all keys together have a weight below 2^-24, less than float32 resolves, if the products of
# queries and keys differ by at most 5. This holds for every input.

alibi = fastpe.theory.page("alibi", causal=True, heads=4)
for name in [name for name in alibi if name.startswith("window")][:4]:
    record = alibi[name]
    print(f"{name}: {record.value:g} ({record.kind})\n  {record.why}")

# %%
# Curves against the length: the reach of ALiBi's heads, and how much a longer text changes the weights.

reach = fastpe.show("alibi", theory=True, heads=4, causal=True)

# %%
# A table has rows for positions that were never trained. Their distance from the trained rows predicts the error beyond
# the training length: in twelve tables, the rank correlation with the error at twice the length is 0.73 (see
# :doc:`/results/theory`).

tables = {}
for name in ("sinusoidal", "legendre", "chebyshev"):
    page = fastpe.theory.page(name, train_length=50, length=100)
    found = {key: record.value for key, record in page.items() if key.startswith("drift@")}
    tables[name] = found
    print(name, {key: round(float(value), 2) for key, value in found.items() if value is not None})

# %%
# Symmetry bounds what any training can reach: a bidirectional model without positions gives the same answer for every
# order of its inputs. On running sums of 50 numbers its squared error cannot be below 12.25.

nope = fastpe.theory.page("nope")
for name, record in nope.items():
    if name.startswith("task.running_sum@"):
        print(f"{name}: {record.value:g} ({record.kind})")

spectrum = fastpe.show("sinusoidal", theory=True)
plt.show()
