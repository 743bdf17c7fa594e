"""The next token of a text, which is a file of yours or all files of a folder (`--data`).

**Tokens** (`tokens`): the bytes of the files, the characters that occur in the text, or subwords. The run folder stores
the vocabulary. Unless tokens are bytes, byte order marks (U+FEFF) are removed, and CRLF and CR become LF. A tokenizer
encodes every document as a whole. Files of tokens, nanoGPT's .bin and .npy with one row of integers, are read as they
are.
**Parts**: the last tokens of the text, a fraction `share` of it, are used only for validation, and the tokens before
them for training. The text may consist of several documents: files, or passages that end with the `separator`. In this
case, all tokens of a document are in the same part. A text of subwords is divided by its bytes, so that the parts are
the same for all tokenizers.
**Sequences**: in training, `train_length` tokens from a random place; the target of each is the next token.
**Metric**: mean cross entropy of all tokens of the validation part, in nats, and in bits per byte of the text. Only
bits per byte can be compared across vocabularies. The text is cut into blocks of the tested length, and every block is
read separately. Tokens early in a block are predicted from few tokens, so longer blocks help a model that can use them.
**Chance**: log V nats for V tokens.

**Options**
- `tokens`: bytes; characters; bpe:N, a byte-pair encoding of N tokens that is trained on the training part; the path of
  a tokenizer.json of the package tokenizers; or ids, the default for files of tokens.
- `separator`: the text that ends a document within a file; \\n, \\t stand for a new line and a tab.
- `share`: the share of the text for validation.
- `tuning`: whether to set the validation part aside for tests, and to validate with the last `share` of the rest.

Source: predicting the next character of a text goes back to Shannon 1948; Karpathy 2015, "The unreasonable
effectiveness of recurrent neural networks", made it the usual first experiment.
"""

from fastpe.base.option import Option
from fastpe.tasks.task import Task

TASK = Task(
    kind="text",
    summary="the next token of your own text",
    symbols=256,
    options={
        "tokens": Option("bytes", "bytes, characters, bpe:N or a tokenizer.json", str, samples=("bytes", "characters")),
        "separator": Option("", "text that ends a document within a file", str),
        "share": Option(0.1, "share of the text for validation", float, above=0.0, maximum=0.9),
        "tuning": Option(False, "whether to validate with the last share of the training part instead", bool),
    },
    causal=True,
    source="Shannon 1948; Karpathy 2015",
)
