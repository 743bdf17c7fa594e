"""What `fastpe evaluate` measures on models of a text: the loss by length, and the receptive field."""

import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from fastpe.base.stored import printable

from .output import Source, encoding_of, figure_kind, print_json, print_table, with_bands
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.model.transformer import Transformer
    from fastpe.training.config import TrainConfig
    from fastpe.training.length_curve import LengthCurve, Point

WHY = (
    "blocks: the text is cut into blocks that the model reads separately. The first tokens of a block have little\n"
    "context, and longer blocks have fewer of them. sliding: a window moves by a quarter of its length, and only its\n"
    "new tokens count, so each token has at least three quarters of the window as context. A model that uses longer\n"
    "context has a lower loss in both."
)


@dataclass
class OnText:
    """A model, its label, the bands that change it, and the text that it is measured on."""

    run: Source
    label: str
    model: "Transformer"
    tokens: "np.ndarray[Any, Any]"
    documents: "np.ndarray[Any, Any] | None"
    digest: str
    size: int | None  # bytes of the text of all tokens but the first
    bands: str = "none"


def on_texts(runs: Sequence[Source], data: Path | None, bands: Sequence[str] = ()) -> list[OnText]:
    """Load models, each with the validation part of its text, or with all of another text; each with every bands."""
    from fastpe.model.banded import parsed

    schemes = bands or ["none"]
    for scheme in schemes:
        if scheme != "none":
            parsed(scheme)  # raises before any work
    moved = data is not None and all(_is_own(run.stored_text(), data) for run in runs)
    found = [_on_text(run, data, moved) for run in runs]
    if len({each.digest for each in found}) > 1:
        raise click.UsageError("these runs were trained on different texts: name one text for all of them, --data FILE")
    vocabularies = [each.model.vocabulary for each in found]
    if len({(each.kind, each.digest) for each in vocabularies if each is not None}) > 1:
        raise click.UsageError(
            "these runs have different tokens: their losses per token and lengths cannot be compared. Measure each run "
            "by itself, and compare bits per byte"
        )
    labels = [each.label for each in found]
    names = [str(each.run) if labels.count(each.label) > 1 else each.label for each in found]
    if len(schemes) == 1:
        return [replace(each, label=name, bands=schemes[0]) for name, each in zip(names, found, strict=True)]
    return [
        replace(each, label=f"{name}, {scheme}" if len(found) > 1 else scheme, bands=scheme)
        for name, each in zip(names, found, strict=True)
        for scheme in schemes
    ]


def _on_text(run: Source, data: Path | None, moved: bool) -> OnText:
    """Load one model; `moved` says that `data` is the run's text in a new place, so only its validation part counts."""
    from fastpe.text import corpus
    from fastpe.training.length_curve import validation_documents
    from fastpe.training.text_data import predicted_bytes, text_parts

    model, symbols, config = run.model, run.vocabulary, run.stored_text()
    if data is not None and not moved:
        separator = "" if config is None else config.chosen.options["separator"]
        try:
            found = corpus.read(data, symbols.kind, separator, symbols)
        except corpus.NoSeparator:
            found = corpus.read(data, symbols.kind, vocabulary=symbols)
        if len(found.tokens) < 2:
            raise click.UsageError(f"--data {data} must have at least two tokens, not {len(found.tokens)}")
        if found.changed:
            click.echo(printable(f"{data}: {found.changed}"), err=True)
        documents = found.documents if len(found.documents) > 2 else None
        size = found.bytes_in(1, len(found.tokens))
        return OnText(run, run.path.name, model, found.tokens, documents, found.digest, size)
    if config is not None and data is not None:
        config = replace(config, text_places=(str(data),))
    if config is None:
        raise click.UsageError(f"{run} names no text: name one, --data FILE")
    division = {name: value for name, value in config.chosen.options.items() if name != "tokens"}
    digest = f"{config.digest} {division}"
    tokens = text_parts(config)[1]
    return OnText(run, run.path.name, model, tokens, validation_documents(config), digest, predicted_bytes(config))


def _is_own(config: "TrainConfig | None", data: Path) -> bool:
    """Whether a file contains the text of a run."""
    from fastpe.text import corpus

    if config is None:
        return False
    try:
        return corpus.digest_at(data) == config.digest
    except ValueError:
        return False


def print_curves(
    found: Sequence[OnText], lengths: Sequence[int] | None, threads: int | None, out: Path | None, as_json: bool
) -> None:
    """Print the loss by length of all models as tables or JSON, and draw a figure."""
    from fastpe.training.length_curve import checked_lengths, length_curve, tokens_read

    from .progress import Bar

    total = 0
    for each in found:  # raise errors before any work
        if encoding_of(each.model) is None:
            with_bands(each.model, each.bands)
        for length in checked_lengths(lengths, each.model.config.train_length, len(each.tokens)):
            total += sum(tokens_read(len(each.tokens), length, sliding=way) for way in (False, True))
    curves: list[tuple[OnText, LengthCurve, LengthCurve]] = []
    with Bar() as bar:
        bar.open(total, 0, "")

        def told(label: str, length: int, tokens: int) -> None:
            before = f"{label}, length {length}"
            if not tokens:
                bar.head(before)
                return
            bar.advance(tokens)
            bar.show(before, f"{bar.pace():,.0f} tokens/s")

        for each in found:
            bar.line(f"{each.label}: reading the text at each length")
            model = with_bands(each.model, each.bands)
            blocks, sliding = (
                length_curve(
                    model, each.tokens, lengths, sliding=way, documents=each.documents, size=each.size,
                    threads=threads, progress=functools.partial(told, each.label),
                )
                for way in (False, True)
            )  # fmt: skip
            curves.append((each, blocks, sliding))
    if out is not None:
        from fastpe.pictures import plots
        from fastpe.pictures.curves import Curves, length_plots

        drawn = [Curves(each.label, encoding_of(each.model) or each.label, *both) for each, *both in curves]
        _write(out, plots.draw(length_plots(drawn, _train_length(found), _unit(found)), figure_kind(out)))
    if as_json:
        print_json([_facts(each, blocks, sliding) for each, blocks, sliding in curves])
        return
    _print_lengths(curves)
    _print_places(curves)
    if out is None:
        next_step({f"{_command(found, '--length-curve')} --out curve.png": "the same as a figure"})


def _facts(each: OnText, blocks: "LengthCurve", sliding: "LengthCurve") -> dict[str, Any]:
    own = {"run": str(each.run), "encoding": encoding_of(each.model), "seed": each.model.config.seed}
    own |= {} if each.bands == "none" else {"bands": each.bands}
    return {**own, "train_length": each.model.config.train_length, "digest": each.digest.split()[0],
            "blocks": blocks.to_dict(), "sliding": sliding.to_dict()}  # fmt: skip


def _print_lengths(curves: Sequence[Any]) -> None:
    rows = []
    for each, blocks, sliding in curves:
        for point, other in zip(blocks.points, sliding.points, strict=True):
            rows.append([each.label, str(point.length), *_cells(point), *_cells(other)])
    head = ("run", "length", "blocks", "95 %", "bits/byte", "sliding", "95 %", "bits/byte")
    click.echo("loss in nats per token, by sequence length\n")
    print_table(head, rows, right=True)
    for each, blocks, _ in curves:
        for point in blocks.points:
            if point.reason:
                click.echo(printable(f"{each.label}, length {point.length}: {point.reason}"))
    click.echo(f"\n{WHY}\n")


def _cells(point: "Point") -> tuple[str, str, str]:
    if point.loss is None:
        return "-", "-", "-"
    bits = "-" if point.bits_per_byte is None else f"{point.bits_per_byte:.4f}"
    return f"{point.loss:.4f}", _interval(point.low, point.high), bits


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.3f}-{high:.3f}"


def _print_places(curves: Sequence[Any]) -> None:
    """Print the loss by position in the longest block."""
    binned = [
        (each.label, blocks.to_dict()["by_position"][str(max(blocks.by_position))])
        for each, blocks, _ in curves
        if blocks.by_position
    ]
    if not binned:
        return
    widest = max((found for _, found in binned), key=len)
    head = ("position", *(label for label, _ in binned))
    rows = []
    for place, one in enumerate(widest):
        name = str(one["first"]) if one["first"] == one["last"] else f"{one['first']}-{one['last']}"
        rows.append([name, *(f"{found[place]['loss']:.4f}" if place < len(found) else "-" for _, found in binned)])
    click.echo("loss by position of the token in the longest block; the first token has no context\n")
    print_table(head, rows, right=True)


def print_fields(
    found: Sequence[OnText], lengths: Sequence[int] | None, threads: int | None, out: Path | None, as_json: bool
) -> None:
    """Print the receptive field of all models as a table or JSON, and draw a figure."""
    from fastpe.training.length_curve import checked_lengths
    from fastpe.training.receptive_field import BLOCKS, SHARE, receptive_field

    from .progress import Bar

    if lengths is not None and len(lengths) != 1:
        raise click.UsageError("--receptive-field uses blocks of one length: give one length to --test-lengths")
    length = lengths[0] if lengths else None
    for each in found:
        checked_lengths(lengths, 1, len(each.tokens))
    fields = {}
    with Bar() as bar:
        bar.open(BLOCKS * len(found), 0, "")

        def told(done: int) -> None:
            bar.advance(1)
            bar.show(f"{each.label}, block {done}", "")

        for each in found:
            bar.head(each.label)
            fields[each.label] = receptive_field(each.model, each.tokens, length, threads=threads, progress=told)
    if out is not None:
        from fastpe.pictures import plots
        from fastpe.pictures.curves import field_plot

        encodings = {each.label: each.model.config.encoding for each in found}
        _write(out, plots.draw([field_plot(fields, encodings, _train_length(found))], figure_kind(out)))
    if as_json:
        print_json([{"run": str(each.run), **fields[each.label].to_dict()} for each in found])
        return
    inside = [1, 4, 16, 64, 256, 1024]
    rows = []
    for each in found:
        field = fields[each.label]
        within = np.cumsum(field.shares)
        shares = [f"{within[n - 1]:.3f}" if n <= field.length else "-" for n in inside]
        rows.append([each.label, str(field.length), f"last {field.distance + 1}", *shares])
    head = ("run", "length", f"{SHARE:.0%} in the", *(f"last {n}" for n in inside))
    click.echo("share of the gradient of the last loss, by distance of the tokens\n")
    print_table(head, rows, right=True)
    click.echo(
        f'\nmeans over at most {BLOCKS} blocks; "last 1" is the last token itself, from which the next one is predicted'
    )
    if out is None:
        next_step({f"{_command(found, '--receptive-field')} --out field.png": "the same as a figure"})


def _command(found: Sequence[OnText], flag: str) -> str:
    runs = dict.fromkeys(each.run for each in found)
    words = [word for run in runs for word in (["--hf", str(run)] if run.hf else [str(run)])]
    return shlex.join(["fastpe", "evaluate", *words, flag])


def _train_length(found: Sequence[OnText]) -> int | None:
    lengths = {each.model.config.train_length for each in found}
    return lengths.pop() if len(lengths) == 1 else None


def _unit(found: Sequence[OnText]) -> str:
    """Return what a token of the models is, in the singular."""
    kinds = {each.model.vocabulary.kind.removesuffix("s") for each in found if each.model.vocabulary is not None}
    return kinds.pop() if len(kinds) == 1 else "token"


def _write(out: Path, content: bytes) -> None:
    from fastpe.base import files

    files.write_file(out, content)
    click.echo(f"written: {out}", err=True)
