"""The settings of a training that the command line offers: group, help and values of each.

Types and defaults are those of the fields of `TrainConfig`. `fastpe train` makes its options from the fields and from
the entries here, so a new setting needs both.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fastpe.model.config import ACTIVATIONS, DTYPES, INITS, NORMS, PRECISIONS
from fastpe.training.config import DECAYS, KEEPS, LENGTHS


class Setting(NamedTuple):
    """What `--help` says about a setting: its meaning, and the values it accepts, as choices or as a placeholder."""

    help: str
    values: tuple[str, ...] | str = ()


SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "Common": {
        "encoding": Setting(
            "Position encoding: a key (`fastpe encodings` lists them), a sum such as wavelet+alibi, a pattern over "
            "layers such as rope*3,nope, or your own file such as ./mine.py."
        ),
        "task": Setting("Task to train on: a key (`fastpe tasks` lists them), or your own file such as ./mine.py."),
        "data": Setting(
            "fixed: one training set for all epochs; fresh: a new one in every epoch; PATH: for --task text, a file "
            "or a folder of files.  [default: fixed for numbers, fresh for tokens]",
            "fixed|fresh|PATH",
        ),
        "train_length": Setting("Length of the longest training input."),
        "samples": Setting("Number of training sequences."),
        "epochs": Setting("Number of passes over the training sequences."),
        "lr": Setting("Learning rate of Adam."),
        "seed": Setting("Seed of the initial weights, the data and their order."),
    },
    "Data": {
        "lengths": Setting(
            "Lengths of the training inputs: all --length, or uniform from 1 to --length.  [default: fixed for "
            "numbers and text, uniform for other tasks]",
            LENGTHS,
        ),
    },
    "Model": {
        "layers": Setting("Number of layers."),
        "heads": Setting("Number of attention heads."),
        "width": Setting("Width of the model."),
        "hidden": Setting("Width inside the feed-forward map."),
        "causal": Setting("Attention mask.  [default: causal for tasks of tokens, and where the encoding needs it]"),
        "sight": Setting(
            "Which keys the queries of each layer attend to: all, window:W, chunks:C, or a pattern over layers such "
            "as window:512*5,all.",
            "PATTERN",
        ),
        "activation": Setting("Activation of the feed-forward map.", ACTIVATIONS),
        "norm": Setting("Normalization before attention and feed-forward map.", NORMS),
        "final_norm": Setting("Add a normalization before the head."),
        "bias": Setting("Use no biases in linear maps and layer norms."),
        "residual": Setting("Use no residual connections."),
        "tied": Setting("Tie the head to the token embeddings."),
        "init": Setting("Rule for the initial weights.", INITS),
        "init_by_depth": Setting("Divide the initial residual output projections by sqrt(2 x layers), as GPT-2 does."),
        "dtype": Setting("Data type of parameters, activations and gradients.", DTYPES),
        "precision": Setting(
            "Precision of the operands of matrix products: bfloat16 rounds them, float32 leaves them as they are.",
            PRECISIONS,
        ),
    },
    "Encoding": {
        "positions": Setting(
            "Positions of the tokens. usual: 0, 1, 2, ... Drawn in every training step: random:L (distinct integers "
            "below L), float:L (real numbers), pose:L (with one gap), offset:L (a table of L rows, in which training "
            "sequences start at any row). Computed from the tokens: digits:K (place within a number, plus 0 .. K in "
            "training; Abacus), coupled:L (significance of a digit, up to L), documents:SEP (positions restart after "
            "the separator tokens SEP, such as 10 or 3,5-7, and attention stays within a document), "
            "documents:SEP:first (the separator starts the document), segments:SEP (position in the segment, and "
            "number of segments; BiPE).  [default: what the encoding needs, or usual]",
        ),
    },
    "Training": {
        "batch": Setting("Number of sequences per update."),
        "warmup": Setting("Number of warm-up updates, over which the learning rate rises."),
        "decay": Setting("Learning-rate schedule after the warm-up: constant, or falling to --min-lr.", DECAYS),
        "min_lr": Setting("Learning rate at the end of the decay."),
        "weight_decay": Setting("Weight decay (AdamW) of matrices and tables; not applied to biases and norms."),
        "clip": Setting("Clip gradients to this norm, taken over all parameters.  [default: no clipping]"),
        "dropout": Setting("Dropout probability in training."),
        "validation": Setting("Number of validation sequences, used after every epoch; 0: no validation."),
        "patience": Setting(
            "Early stopping: stop after this many epochs without a lower validation loss; 0: never stop early."
        ),
        "stop_solved": Setting("Stop once every validation answer is right."),
        "keep": Setting("Which model to save and test: the last, or the one with the lowest validation loss.", KEEPS),
    },
    "Evaluation": {
        "test_lengths": Setting(
            "Length to test at, or a range such as 51-100; may be repeated.  [default: 50, 100 and 200 for numbers; "
            "one, two and four times --length for a text; otherwise ranges up to one, two and three times --length]",
            "N|A-B",
        ),
        "test_sequences": Setting("Number of test sequences for each test length."),
    },
}
"""The settings by group, in the order in which `--help` lists them, and by name of the field in `TrainConfig`."""
