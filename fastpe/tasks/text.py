"""The next token of a text: that of your own file, or of all files of a folder (`--data`).

**Tokens**: the bytes of the files as they are, or characters: those that the text has (`tokens`). The run folder keeps
them. As characters, byte order marks (U+FEFF) are left out, and the line ends CRLF and CR become LF.
**Parts**: the last `share` of the tokens is for validation alone, and training has what comes before. Where files, or
texts that end with the `separator`, are documents of their own, none of them is cut.
**Sequences**: in training, `train_length` tokens from anywhere, and for each of them the next one.
**Metric**: mean cross entropy of all tokens of the validation part, in nats, and in bits per byte of the text, which
can be compared across vocabularies. The text is cut into blocks of the length that is tested, and every block read
alone: what stands early in one is predicted from few tokens, so that a longer block helps a model that can use it.
**Chance**: log V nats for V tokens.

**Options**
- `tokens`: bytes or characters.
- `separator`: what ends a document within a file; \\n, \\t stand for a new line and a tab.
- `share`: of the text, for validation.
- `tuning`: set that part aside, where it is what tests read, and validate with the last `share` of the rest.

Source: the next character of a text is Shannon 1948's; Karpathy 2015, "The unreasonable effectiveness of recurrent
neural networks", made it the first thing that one trains.
"""

from fastpe.base.option import Option
from fastpe.tasks.task import Task

TASK = Task(
    kind="text",
    summary="the next token of your own text",
    symbols=256,
    options={
        "tokens": Option("bytes", "what a token is", str, choices=("bytes", "characters")),
        "separator": Option("", "what ends a document within a file", str),
        "share": Option(0.1, "of the text, for validation", float, above=0.0, maximum=0.9),
        "tuning": Option(False, "whether to set that part aside, and validate with the last share of the rest", bool),
    },
    causal=True,
    source="Shannon 1948; Karpathy 2015",
)
