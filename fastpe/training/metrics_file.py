"""``metrics.jsonl``: one line for each finished epoch of a run."""

import json
from pathlib import Path
from typing import Any

from fastpe.base import files, stored
from fastpe.training import forms
from fastpe.training.config import TrainConfig

NAME = "metrics.jsonl"
_LONGEST = 512  # bytes per line; fastpe writes about a third of this
_MOST = 2**30  # bytes per file: two million epochs
_SPARE = 2**20  # bytes that a file may have in addition to its lines


def write(folder: Path, history: list[dict[str, Any]]) -> None:
    """Write the lines of all epochs."""
    lines = [json.dumps(line, allow_nan=False) + "\n" for line in history]
    files.write_file(folder / NAME, "".join(lines).encode())


def most_bytes(config: TrainConfig) -> int:
    """Return the largest valid size of the file."""
    return min(_SPARE + config.epochs * _LONGEST, _MOST)


def cut(folder: Path, config: TrainConfig, epochs: int) -> tuple[list[dict[str, Any]], int]:
    """Keep the lines of the first `epochs` epochs; return them and the number of missing or damaged lines.

    Raises
    ------
    DamagedFileError
        If ``metrics.jsonl`` is not a file, or is larger than `most_bytes`.
    """
    try:
        content = files.read_file(folder / NAME, most_bytes(config))
    except FileNotFoundError:
        content = b""
    lines, form, found = content.splitlines(), forms.metrics_line(config), {}
    for text in lines:
        try:
            line = stored.parse(text[: _LONGEST + 1])
            form("", line)
        except ValueError:
            continue
        found[line["epoch"]] = line
    history = [found[epoch] for epoch in sorted(found) if epoch <= epochs]
    if len(lines) > len(history):
        write(folder, history)
    return history, epochs - len(history)
