"""``fastpe theory``: theoretical properties of encodings without training, or of the encoding of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .options import ENCODING, INTEGER
from .output import Source, own_files, parse_options, print_json
from .paper_claims import show_claims
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.theory.pages.record import Record
    from fastpe.theory.pages.subject import Subject

    from .progress import Reporter

_ALL = "all"
# Parameters that may be combined with --run or --hf.
_OF_HF = {"length", "hf", "everything", "as_json", "claims"}
_OF_RUN = _OF_HF - {"hf"} | {"run", "probe", "bins", "sequences", "_own_tasks"}


@click.command()
@click.argument("names", nargs=-1, metavar="[ENCODING]...", type=ENCODING)
@click.option(
    "--length", type=INTEGER, multiple=True, metavar="N",
    help="Further length to compute properties at; may be repeated.  [default: 2 and 4 times --train-length]",
)  # fmt: skip
@click.option(
    "--train-length",
    type=INTEGER,
    default=50,
    show_default=True,
    help="Training length. The encoding is built for this length.",
)
@click.option("--dim", type=INTEGER, default=64, show_default=True, help="Width of the model.")
@click.option("--heads", type=INTEGER, default=1, show_default=True, help="Number of attention heads.")
@click.option("--causal", is_flag=True, help="Assume a model with a causal mask.")
@click.option("--option", "options", multiple=True, metavar="K=V", help="Option of an encoding; may be repeated.")
@click.option(
    "--run", type=click.Path(path_type=Path), metavar="RUN", help="Use the encoding and the weights of this run."
)
@click.option(
    "--hf", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Use the encoding and the weights of this model in the format of Hugging Face's transformers.",
)  # fmt: skip
@own_files("the run", "task")
@click.option("--probe", is_flag=True, help="With --run: estimate the information about the position in each layer.")
@click.option(
    "--bins",
    type=INTEGER,
    metavar="B",
    help="With --probe: also estimate this information from a histogram with B bins (plug-in estimate).",
)
@click.option(
    "--sequences",
    type=INTEGER,
    default=1200,
    show_default=True,
    help="With --probe: number of new sequences, with which the estimates are fitted, calibrated and tested.",
)
@click.option(
    "--claims",
    is_flag=False,
    flag_value=_ALL,
    metavar="[ID]",
    help="Recompute the claim ID of Li (2025), one of C1 to C121, or without ID all claims.",
)
@click.option("--all", "everything", is_flag=True, help="Print all quantities, not only those that decide a choice.")
@click.option("--json", "as_json", is_flag=True, help="Print all quantities as JSON, in full precision.")
@click.pass_context
def theory(
    context: click.Context, names: tuple[str, ...], length: tuple[int, ...], run: Path | None, hf: Path | None,
    probe: bool, bins: int | None, sequences: int, options: tuple[str, ...], claims: str | None, everything: bool,
    as_json: bool, **sizes: Any,
) -> None:  # fmt: skip
    """Compute theoretical properties of ENCODING, without training it.

    The command prints a table of the quantities that decide a choice of encoding, with their values, units and
    meanings. If you name several encodings, the table has a column of values for each. --all prints all quantities.

    ENCODING may also be a sum such as sinusoidal+alibi, or a file that defines your own, such as ./mine.py. Every
    number is exact, a certified bound (<= or >=), or an estimate with its 95 % interval (+-). "-" means that the
    quantity is not defined for the encoding.

    \b
    Examples:
      fastpe theory rope
      fastpe theory alibi --causal --option slope=0.5
      fastpe theory sinusoidal wavelet legendre --length 100 --length 400
      fastpe theory --run runs/wavelet-0 --probe
      fastpe theory --hf SmolLM2-135M
    """
    if claims is not None:
        _check_alone(context, names)
        show_claims(None if claims == _ALL else claims, as_json)
        return
    _check_choice(context, names, probe)
    from .progress import Reporter

    with Reporter() as reporter:
        subjects = _subjects(names, length, run, hf, options, sizes)
        pages = _pages(subjects, reporter)
        if run is not None and probe:
            reporter.open(None, 0, "probing the layers")
            pages[0] |= _probed(run, subjects[0], bins, sequences)
    if as_json:
        print_json({"schema": 1, "pages": [_as_dict(*each) for each in zip(subjects, pages, strict=True)]})
        return
    from . import theory_pages

    theory_pages.show(subjects, pages, everything)
    if run is None and hf is None:
        every = " ".join(names)
        next_step(
            {
                f"fastpe show --theory {names[0]}": "the same as curves",
                f"fastpe compare {every} --task reverse": "train",
            }
        )


def _given(context: click.Context) -> dict[str, str]:
    """Return the flags on the command line by the names of their parameters."""
    return {
        str(each.name): each.opts[0]
        for each in context.command.params
        if each.name is not None and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    }


def _check_alone(context: click.Context, names: Sequence[str]) -> None:
    """Raise if an argument or option is given that --claims does not use."""
    others = [*names, *(flag for name, flag in _given(context).items() if name not in {"names", "claims", "as_json"})]
    if others:
        raise click.UsageError(f"--claims uses the encodings and sizes of the paper: leave out {others[0]}", context)


def _check_choice(context: click.Context, names: Sequence[str], probe: bool) -> None:
    flags = _given(context)
    if "run" in flags and "hf" in flags:
        raise click.UsageError("--run and --hf exclude each other: give one", context)
    model = next((flags[name] for name in ("run", "hf") if name in flags), None)
    if model is None and not names:
        raise click.UsageError("name an ENCODING, or give --run RUN or --hf FOLDER", context)
    if model != "--run" and probe:
        raise click.UsageError("--probe needs --run, because only a trained model has layers to probe", context)
    for name in ("bins", "sequences"):
        if name in flags and not probe:
            raise click.UsageError(f"{flags[name]} needs --probe", context)
    if model is None:
        return
    what, allowed = ("run", _OF_RUN) if model == "--run" else ("model", _OF_HF)
    if len(names) > 1:
        raise click.UsageError(f"{model} uses the encoding of the {what}: leave out ENCODING", context)
    if own := [flag for name, flag in flags.items() if name not in allowed | {"names"}]:
        raise click.UsageError(f"{model} uses the sizes and options of the {what}: leave out {own[0]}", context)


def _subjects(
    names: Sequence[str], lengths: Sequence[int], run: Path | None, hf: Path | None, options: Sequence[str],
    sizes: dict[str, Any],
) -> list["Subject"]:  # fmt: skip
    from fastpe.theory.pages.collect import subject_of

    asked: dict[str, Any] = {"length": lengths or None}
    if run is not None or hf is not None:
        model = run if hf is None else Source(hf, hf=True).model
        return [subject_of(names[0] if names else None, run=model, **asked)]
    own = _options(names, options)
    return [subject_of(name, **asked, **sizes, **own[name]) for name in names]


def _options(names: Sequence[str], texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Give each option to all encodings that have it. An option that no encoding has is an error."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        refused = list[ValueError]()
        for name in names:
            try:
                found[name] |= parse_options(name, [text])
            except ValueError as error:
                refused.append(error)
        for each in refused:
            if "is unknown" not in str(each):  # the encoding has this option, but refuses the value
                raise each
        if len(refused) == len(names):
            raise next((each for each in refused if "did you mean" in str(each)), refused[0])
    return found


def _pages(subjects: Sequence["Subject"], reporter: "Reporter") -> list[dict[str, "Record"]]:
    from fastpe.theory.pages.collect import PARTS, records

    reporter.open(len(PARTS) * len(subjects), 0, subjects[0].name)

    def told(name: str, part: str) -> None:
        reporter.advance(1)
        reporter.show(name, part)

    return [records(each, lambda part, name=each.name: told(name, part)) for each in subjects]  # type: ignore[misc]


def _probed(run: Path, subject: "Subject", bins: int | None, sequences: int) -> dict[str, "Record"]:
    from fastpe.theory.pages.of_run import probe_records

    defined = [column for column in subject.columns if subject.slots(column) is not None]
    return probe_records(run, defined, bins=bins, sequences=sequences)


def _as_dict(subject: "Subject", page: dict[str, "Record"]) -> dict[str, Any]:
    from fastpe.theory.pages.record import plain

    return {
        "encoding": subject.name, "options": plain(subject.options), "dim": subject.dim, "heads": subject.heads,
        "train_length": subject.train_length, "causal": subject.causal, "lengths": list(subject.columns),
        "remarks": subject.remarks, "records": {name: record.to_dict() for name, record in page.items()},
    }  # fmt: skip
