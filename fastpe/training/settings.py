"""The settings of a training that the command line offers: group, help and values of each.

Types and defaults are those of the fields of `TrainConfig`. `fastpe train` makes its options from the fields and from
the entries here, so a new setting needs both.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fastpe.model.config import ACTIVATIONS, DTYPES, INITS, NORMS, PLACEMENTS, PRECISIONS, QK_NORMS
from fastpe.training.config import DECAYS, KEEPS, LENGTHS


class Setting(NamedTuple):
    """What `--help` says about a setting: its meaning, and the values it accepts, as choices or as a placeholder."""

    help: str
    values: tuple[str, ...] | str = ()


SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "Common": {
        "encoding": Setting(
            "Position encoding: a name (`fastpe encodings` lists them), a sum such as wavelet+alibi, a pattern over "
            "layers such as rope*3,nope, or a file that defines your own, such as ./mine.py."
        ),
        "task": Setting(
            "Task to train on: a name (`fastpe tasks` lists them), or a file that defines your own, such as ./mine.py."
        ),
        "data": Setting(
            "Training data. fixed: one training set for all epochs; fresh: a new one in every epoch; PATH: for --task "
            "text, a file, a folder of files, or a file of tokens (nanoGPT's .bin, or .npy).  [default: fixed for "
            "tasks of numbers, fresh for tasks of tokens]",
            "fixed|fresh|PATH",
        ),
        "train_length": Setting("Training length: the length of the longest training input."),
        "samples": Setting("Number of training sequences."),
        "epochs": Setting("Number of passes over the training sequences."),
        "lr": Setting("Learning rate of Adam."),
        "seed": Setting("Seed of the initial weights, of the data, and of the order of the data."),
    },
    "Data": {
        "vocabulary": Setting(
            "For --tokens FILE or ids: number of tokens of the model.  [default: those of the tokenizer, or up to the "
            "largest one of the file]",
        ),
        "lengths": Setting(
            "Distribution of the lengths of training inputs. fixed: all have the training length; uniform: lengths are "
            "drawn uniformly from 1 to the training length.  [default: fixed for tasks of numbers and for text, "
            "uniform for other tasks]",
            LENGTHS,
        ),
    },
    "Model": {
        "layers": Setting("Number of layers."),
        "heads": Setting("Number of attention heads."),
        "width": Setting("Width of the model."),
        "hidden": Setting("Hidden width of the feed-forward layer."),
        "causal": Setting("Attention mask.  [default: causal for tasks of tokens, and where the encoding needs it]"),
        "sight": Setting(
            "Which keys a query attends to. all; window:W: keys at a distance below W; chunks:C: keys in the query's "
            "chunk of C positions; or a pattern over layers, such as window:512*5,all.",
            "PATTERN",
        ),
        "activation": Setting("Activation of the feed-forward layer.", ACTIVATIONS),
        "norm": Setting("Normalization before attention and feed-forward layer.", NORMS),
        "final_norm": Setting("Add a normalization before the head."),
        "norm_placement": Setting(
            "Place of the normalizations: before attention and feed-forward layer, after them, or both.", PLACEMENTS
        ),
        "norm_eps": Setting("Constant under the root of all normalizations."),
        "key_heads": Setting(
            "Number of heads of keys and values, a divisor of --heads (grouped queries).  [default: --heads]"
        ),
        "head_dim": Setting("Width of one head.  [default: --width / --heads]"),
        "qk_norm": Setting(
            "Normalize queries and keys, each head by itself or all heads together.  [default: no]", QK_NORMS
        ),
        "parallel": Setting("Let attention and feed-forward layer read the same input, as in GPT-NeoX."),
        "score_softcap": Setting("Soft cap of the scores of attention.  [default: none]"),
        "logit_softcap": Setting("Soft cap of the logits.  [default: none]"),
        "sinks": Setting("Give each head a learned score that takes weight from all keys, as in gpt-oss."),
        "bias": Setting("Use no biases in linear maps and layer norms."),
        "residual": Setting("Use no residual connections."),
        "tied": Setting("Tie the head to the token embeddings."),
        "init": Setting("Rule for the initial weights.", INITS),
        "init_by_depth": Setting(
            "Divide the initial weights of projections that write to the residual stream by sqrt(2 x layers), as GPT-2 "
            "does."
        ),
        "dtype": Setting("Data type of parameters, activations and gradients.", DTYPES),
        "precision": Setting(
            "Precision of the operands of matrix products: bfloat16 rounds them, float32 leaves them as they are.",
            PRECISIONS,
        ),
    },
    "Encoding": {
        "positions": Setting(
            "Positions of the tokens. usual: 0, 1, 2, ... The following are drawn in every training step. random:L: "
            "different integers below L; float:L: real numbers below L - 1; pose:L: 0, 1, 2, ... with one gap, below "
            "L; offset:L: consecutive rows of a table of L rows, starting at a random row. The following are computed "
            "from the tokens. digits:K: place of a digit in its number, plus a random number from 0 to K in training "
            "(Abacus); coupled:L: significance of a digit, with positions up to L; documents:SEP: positions restart "
            "after each separator, and attention stays within a document (SEP are the separator tokens, such as 10 or "
            "3,5-7); documents:SEP:first: the same, but a separator begins a document; segments:SEP: position in the "
            "segment, and number of earlier segments (BiPE).  [default: what the encoding needs, otherwise usual]",
        ),
    },
    "Training": {
        "batch": Setting("Number of sequences per update."),
        "warmup": Setting("Number of warm-up updates, over which the learning rate rises."),
        "decay": Setting(
            "Learning rate after the warm-up: constant, or falling to --min-lr, linearly or as a cosine.", DECAYS
        ),
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
            "Test lengths, such as 50,100, or ranges of them, such as 1-50,51-100.  [default: 50, 100 and 200 for "
            "tasks of numbers; 1, 2 and 4 times the training length for text; for other tasks, ranges up to 1, 2 and 3 "
            "times the training length]",
        ),
        "test_sequences": Setting("Number of test sequences for each test length."),
    },
}
"""The settings by group, in the order in which `--help` lists them, and by name of the field in `TrainConfig`."""
