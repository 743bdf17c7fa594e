"""Reads the record of an encoding from its file without importing the file, which would load NumPy and Numba."""

import ast
from pathlib import Path
from typing import Any

from fastpe.encodings.encoding import Needs, Reported

FIELDS = (
    "summary", "formula", "use_when", "also_called", "not_to_be_confused", "use", "slots", "beyond", "source",
    "reported", "needs",
)  # fmt: skip
"""The fields of `fastpe.encodings.encoding.Encoding` that encodings of this package give as literals."""

_RECORD = "ENCODING = "


def record(file: Path) -> dict[str, Any]:
    """Return the fields of `FIELDS` that a file's `ENCODING` sets, and `learned`: "yes", "optional" or "no".

    `learned` is "no" if the file has neither a `pull` nor a gate, and "optional" if it has a `pull` and an option
    `learned` that is False by default. For an encoding with a gate, the result also has `gated`, which is True.

    >>> fields = record(Path(__file__).parent / "bias" / "alibi.py")
    >>> fields["slots"], fields["learned"], fields["reported"].outcome
    (('bias', 'scores'), 'optional', 'holds')
    """
    text = file.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n{_RECORD}")
    node = ast.parse(_RECORD + rest).body[0]
    assert isinstance(node, ast.Assign)
    assert isinstance(node.value, ast.Call)
    keywords = {keyword.arg: keyword.value for keyword in node.value.keywords}
    fields = {name: _value(keywords[name]) for name in FIELDS if name in keywords}
    if "gate" in keywords:
        return fields | {"learned": "yes", "gated": True}
    if "pull" not in keywords and "\ndef pull(" not in text:
        return fields | {"learned": "no"}
    return fields | {"learned": "optional" if "options" in keywords and _by_choice(keywords["options"]) else "yes"}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        kind = {"Reported": Reported, "Needs": Needs}[ast.unparse(node.func)]
        return kind(*map(ast.literal_eval, node.args))
    return ast.literal_eval(node)


def _by_choice(options: ast.expr) -> bool:
    """Whether there is an option `learned` that is False by default."""
    if not isinstance(options, ast.Dict):
        return False
    values = {ast.unparse(key): value for key, value in zip(options.keys, options.values, strict=True) if key}
    choice = values.get("'learned'")
    return isinstance(choice, ast.Call) and ast.unparse(choice.args[0]) == "False"
