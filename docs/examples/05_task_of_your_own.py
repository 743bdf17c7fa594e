"""
A task of your own
==================

A task is a file: a function that draws inputs and answers, and a record. In this task, the answer is the first symbol
of the input plus the last one, so that a model must find both ends at every length.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import fastpe
from fastpe.tasks import load_task, register

# %%
# ``fastpe check --template task`` prints a file to start from, and ``fastpe check FILE`` tests a file. `draws` is the
# only source of random numbers, so runs with the same seed have the same data.

SOURCE = '''"""Both ends: the first symbol plus the last one, modulo S.

**Sequence**: begin, symbols, separator, the answer, end. Symbols are independent and uniform.
**Chance**: 1/S.

Source: an own construction.
"""

import fastpe
from fastpe.tasks import Chance, Task


def sample(draws, length, count, *, symbols):
    inputs = draws.integers(symbols, (count, length))
    return inputs, (inputs[:, :1] + inputs[:, -1:]) % symbols


def answer_length(length, *, symbols):
    return 1


def chance(length, *, symbols):
    return Chance(1 / symbols, 1 / symbols)


TASK = Task(
    kind="answer",
    summary="the first symbol plus the last one",
    symbols=lambda symbols: symbols,
    options={"symbols": fastpe.Option(4, "number of symbols", int, minimum=2, maximum=26)},
    source="an own construction",
)
'''
file = Path(tempfile.mkdtemp()) / "both_ends.py"
file.write_text(SOURCE)
key = register(file)
print(load_task(key).summary)

# %%
# Now the task works like those of fastpe: in `fastpe.train`, in `fastpe.compare`, and on the command line as
# ``--task ./both_ends.py``. Three encodings, one seed each:

lengths = ("1-12", "13-24", "25-36")
figure, panel = plt.subplots(figsize=(7, 3.8), layout="constrained")
panel.axvspan(0.5, 2.4, color="0.93")
for encoding in ("rope", "t5", "nope"):
    config = fastpe.TrainConfig(
        encoding, task=key, causal=True, width=32, hidden=128, layers=2, heads=2, norm="layernorm", final_norm=True,
        lr=3e-3, warmup=50, decay="linear", clip=1.0, train_length=12, samples=3200, epochs=12, validation=256,
        stop_solved=True, test_lengths=lengths, test_sequences=300,
    )  # fmt: skip
    result = fastpe.train(config, progress=False)
    panel.plot(lengths, [100 * result.result["test"][each]["exact"] for each in lengths], marker="o", label=encoding)
panel.axhline(25, color="black", linewidth=0.8, linestyle="dotted")
panel.text(0.02, 27, "chance")
panel.set(xlabel="length of the input", ylabel="right answers, %", ylim=(0, 103), xlim=(-0.3, 2.4))
panel.legend()

# %%
# One seed shows only large differences. `fastpe.compare` with seven seeds or more gives verdicts: see
# :doc:`/gallery/02_beyond_the_training_length`.

plt.show()
