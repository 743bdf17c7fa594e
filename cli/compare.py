"""``fastpe compare`` trains and compares encodings; ``merge`` and ``report`` work on the folders that it writes."""

import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.training.presets import PRESETS

from .options import (
    ENCODING,
    INTEGER,
    NUMBER,
    TASK,
    Grouped,
    Integer,
    Lengths,
    as_json,
    earlier_names,
    joined,
    option,
    test_lengths,
)
from .output import INTERRUPTED, own_files, print_json
from .terminal import columns, next_step, opening

if TYPE_CHECKING:
    from fastpe.experiments.study import Study
    from fastpe.experiments.study_folder import Compared


_OPTIONS = {
    "Common": [
        option(
            "--task", "tasks", multiple=True, metavar="T", shell_complete=TASK.shell_complete,
            help="Task to train on (`fastpe tasks` lists them); may be repeated.",
        ),
        option("--seeds", type=INTEGER, default=10, show_default=True, help="Runs of each encoding on each task."),
        option(
            "--baseline", shell_complete=ENCODING.shell_complete,
            help="Encoding that the others are compared with.  [default: nope if it is in the study, else the first]",
        ),
        option("--train-length", type=INTEGER, help="Training length.  [default: that of the preset]"),
        test_lengths("Test lengths, such as 50,100, or ranges, such as 1-50,51-100.  [default: those of the preset]"),
        option(
            "--preset", type=click.Choice(tuple(PRESETS)), default="recipe", show_default=True,
            help="Settings of all runs. recipe: those of small models that solve the task; li2025: the defaults of "
            "fastpe.TrainConfig; the others: published protocols.",
        ),
        option(
            "--set", "settings", multiple=True, metavar="KEY=VALUE",
            help="Setting of all runs, such as epochs=5; may be repeated. `--set help` lists the settings.",
        ),
        option("--out", type=click.Path(path_type=Path), help="Folder of the study.  [default: compare]"),
    ],
    "Study": [
        option(
            "--vary", multiple=True, metavar="KEY=V,V",
            help="Values of a setting. Each combination of an encoding and a value is a separate entry of the "
            "comparison; may be repeated.",
        ),
        option(
            "--choose", multiple=True, metavar="KEY=V,V",
            help="Choose the best of these values of a setting by validation, separately for each encoding on each "
            "task; may be repeated.",
        ),
        option(
            "--choose-seeds", type=INTEGER, metavar="N",
            help="Number of runs with each value that --choose tries. Their seeds differ from those of the study.  "
            "[default: 3]",
        ),
        option(
            "--margin", type=NUMBER,
            help="Encodings whose results differ by at most this margin count as equivalent. For errors, the margin is "
            "relative: 0.1 is 10 %.",
        ),
        option("--study", "file", type=click.Path(path_type=Path), help="Study file to run, such as a study.toml."),
        option(
            "--encoding", "own_encodings", multiple=True, metavar="FILE", type=ENCODING,
            help="With --study: file that defines your own encoding, if the study uses one; may be repeated. Give "
            "files of your own tasks to --task.",
        ),
    ],
    "Execution": [
        option(
            "--runs", type=click.Path(path_type=Path),
            help="Folder of the runs. Several studies may use the same folder.  [default: OUT/runs]",
        ),
        option(
            "--workers", type=Integer(1),
            help="Number of processes. Each has one thread.  [default: usable cores]",
        ),
        option(
            "--cluster", metavar="WHERE",
            help="Run on dask.distributed. WHERE is the word local, the address of a scheduler, or a scheduler file. "
            "Unless dask is set up for TLS, nothing is authenticated or encrypted, and anyone who can reach the "
            "scheduler can run code here and on every worker. Use this only in a network where you trust everyone.",
        ),
        option("--shard", metavar="I/N", help="Run only the I-th of N parts; `fastpe merge` joins the parts."),
        option("--dry-run", is_flag=True, help="Only print the number of runs and an estimate of FLOPs and time."),
    ],
    "Output": [as_json()],
}  # fmt: skip


# Long: one parameter for each option
@click.command(
    cls=Grouped, groups=_OPTIONS,
    context_settings=earlier_names(length="train-length", lengths="test-lengths", test_length="test-lengths"),
)  # fmt: skip
@click.argument("encodings", nargs=-1, metavar="ENCODING[:NAME=VALUE,...]...", shell_complete=ENCODING.shell_complete)
@click.pass_context
def compare(
    context: click.Context,
    encodings: tuple[str, ...],
    tasks: tuple[str, ...],
    seeds: int,
    baseline: str | None,
    train_length: int | None,
    test_lengths: tuple[tuple[int | str, ...], ...],
    preset: str,
    settings: tuple[str, ...],
    vary: tuple[str, ...],
    choose: tuple[str, ...],
    choose_seeds: int | None,
    margin: float | None,
    file: Path | None,
    own_encodings: tuple[str, ...],
    out: Path | None,
    runs: Path | None,
    workers: int | None,
    cluster: str | None,
    shard: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train each ENCODING on each task, and compare the results.

    All encodings are trained with the same seeds. Their results are compared with those of a baseline encoding.

    To give one encoding its own settings and options, write them after a colon: abacus:positions=digits:20,heads=2 or
    alibi:slope=0.5. Some encodings need the positions of digits within their numbers, coordinates of the tokens, or a
    graph. If the settings do not provide them, such an encoding uses its default for sequences. If it has no default,
    the command ends with an error (see `fastpe encodings NAME`).

    The command writes these files to the folder --out: the page report.html, the tables results.csv, results.json and
    results.md, the study file study.toml, and all run folders. Finished runs are not repeated: to continue an
    interrupted study, run the same command again.
    """
    from fastpe.experiments.compare import compare as make
    from fastpe.experiments.study import SETTINGS, Study, varied

    from .presets import print_all_settings, print_preset
    from .progress import JobReporter

    if "help" in settings:
        print_all_settings(SETTINGS)
        return
    if own_encodings and file is None:
        raise click.UsageError("--encoding needs --study: name the encodings of a new study as arguments")
    if file is not None:
        for each in tasks:
            if each.endswith(".py"):
                TASK.convert(each, None, None)
        tasks = tuple(each for each in tasks if not each.endswith(".py"))
        given = context.get_parameter_source("preset") is ParameterSource.COMMANDLINE
        new = (encodings, tasks, settings, train_length, test_lengths, given, vary, choose, choose_seeds)
        if any(each not in (None, (), False) for each in new):
            raise click.UsageError("--study names a complete study: leave out encodings and the options of a new study")
        study = Study.read(file)
    else:
        _refuse_missing(encodings, tasks)
        own = _settings("--set", settings)
        if train_length is not None:
            own["train_length"] = train_length
        if test_lengths:
            own["test_lengths"] = list(joined(test_lengths))
        facts = {"baseline": baseline, "settings": own, "preset": preset, "margin": margin}
        grid = {"choose": _lists("--choose", choose), "choose_seeds": choose_seeds}
        entries = [_entry(text) for text in encodings]
        if len(dict(entries)) < len(entries):
            raise click.UsageError(f"encodings must be distinct, not {list(encodings)}")
        if baseline in encodings:
            facts["baseline"] = entries[encodings.index(baseline)][0]
        try:
            study = Study(dict(entries), list(tasks), seeds, **facts, **grid)  # type: ignore[arg-type] # made dicts
            study = varied(study, _lists("--vary", vary)) if vary else study
        except TypeError as error:  # for example a word in place of a number
            raise click.UsageError(str(error)) from error
    part = None if shard is None else _shard(shard)
    if study.preset is not None and study.preset != "li2025":
        for task in study.tasks:
            print_preset(study.preset, study.config_of(task), study.settings)
    if dry_run:
        _print_plan(study, as_json)
        return
    target = out or Path("compare")
    try:
        with JobReporter() as reporter:
            found = make(study, out=target, runs=runs, workers=workers, shard=part, cluster=cluster, progress=reporter)
    except KeyboardInterrupt:
        click.echo("fastpe: interrupted; to continue, run the same command again", err=True)
        sys.exit(INTERRUPTED)
    if found is None:
        click.echo(f"shard {shard} is done: join all shards with fastpe merge {target} ... --out FOLDER", err=True)
    else:
        _print(found, as_json)
        if not as_json:
            _tell_next(study, target)


def _tell_next(study: "Study", folder: Path) -> None:
    told = {opening(folder / "report.html"): "the report with its figures"}
    if len(study.each_seed) < 10:
        told["the same command with --seeds 10"] = "more seeds; finished runs are not repeated"
    next_step(told)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the joined study.  [required]")
@own_files("the study", "encoding", "task")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def merge(folders: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Join the shards of a study, and report its results.

    Each DIR is the folder of one shard, written by `fastpe compare --shard`.
    """
    from fastpe.experiments import existing_runs

    from .progress import working

    if out is None:
        existing_runs.shared_study(folders)  # report errors in the folders before the missing option
        raise click.UsageError("--out is missing: name the folder of the joined study")
    with working("joining the shards"):
        found = existing_runs.merge(folders, out)
    _print(found, as_json)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the report on single runs.  [default: report]")
@click.option("--runs", type=click.Path(path_type=Path), help="Folder of the study's runs.  [default: DIR/runs]")
@click.option(
    "--baseline", shell_complete=ENCODING.shell_complete,
    help="For single runs: encoding that the others are compared with.  [default: nope if it is among them, else the "
    "first]",
)  # fmt: skip
@click.option(
    "--margin", type=NUMBER,
    help="For a study: its new margin (see `fastpe compare --help`), which study.toml then contains.",
)  # fmt: skip
@own_files("the study or a run", "encoding", "task")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def report(
    folders: tuple[Path, ...],
    out: Path | None,
    runs: Path | None,
    baseline: str | None,
    margin: float | None,
    as_json: bool,
) -> None:
    """Report on a study or on single run folders.

    DIR is the folder of a study, or several run folders. For a study, the page and the tables are written again from
    its runs.
    """
    from fastpe.experiments.existing_runs import report_runs, report_study
    from fastpe.experiments.study_folder import FILE

    from .progress import working

    if len(folders) == 1 and (folders[0] / FILE).exists():
        if out is not None or baseline is not None:
            raise click.UsageError("--out and --baseline are for single runs: a study has its own")
        with working("reading the runs"):
            found = report_study(folders[0], runs, margin)
        _print(found, as_json)
        return
    if runs is not None:
        raise click.UsageError("--runs needs a study: name single run folders as arguments")
    if margin is not None:
        raise click.UsageError("--margin needs a study folder")
    with working("reading the runs"):
        found = report_runs(folders, out or Path("report"), baseline)
    _print(found, as_json)


def _print(found: "Compared", as_json: bool) -> None:
    """Print the answer, a table for each task with a verdict behind each result, and how sure the verdicts are."""
    from fastpe.experiments.sections import as_text
    from fastpe.experiments.study_answer import answer, answer_of
    from fastpe.experiments.study_report import certainty, task_section, warnings

    if as_json:
        print_json(found.summary)
        return
    study, summary = found.study, found.summary
    several = len(study.tasks) > 1
    tables = [
        task_section(study, summary, task)._replace(lines=[answer_of(study, summary, task)] if several else [])
        for task in study.tasks
    ]
    width = min(columns(), 100)
    paragraphs = [[answer(study, summary)], warnings(study, summary), certainty(study, summary)]
    first, warned, sure = ("\n".join(textwrap.fill(line, width) for line in lines) for lines in paragraphs)
    click.echo("\n\n".join(filter(None, (first, warned, as_text(tables, width).rstrip(), sure))))
    print_written(found)


def print_written(found: "Compared") -> None:
    """Print on standard error where a study's files are, and what to install for PDF figures."""
    from fastpe.pictures.canvas import available

    figures = "figures as .svg and .pdf" if available() else "figures as .svg"
    click.echo(f"\nwritten in {found.out}: report.html, results.csv, .json, .md, study.toml, {figures}", err=True)
    if not available():
        click.echo("no .pdf, which needs matplotlib: pip install matplotlib", err=True)


def _print_plan(study: "Study", as_json: bool) -> None:
    """Print the number of runs, FLOPs and time, estimated from a few updates of each encoding on each task."""
    from fastpe.doctor.machine import usable_cores
    from fastpe.experiments.plan import plan
    from fastpe.experiments.study_answer import can_be_concluded

    from .progress import Reporter

    with Reporter() as reporter:
        found = plan(study, reporter.line)
    if as_json:
        print_json({**asdict(found), "cores": usable_cores()})
        return
    tuning = f", {found.tuning_runs:,} of them for --choose; assumes the costliest choice" if study.choose else ""
    click.echo(f"runs   {found.runs:,}{tuning}")
    click.echo(f"FLOPs  {found.flop:.3g}")
    click.echo(f"time   {found.seconds / 60:,.1f} min on one core, without tests; usable cores: {usable_cores()}")
    for line in can_be_concluded(study):
        click.echo(line)


def _refuse_missing(encodings: Sequence[str], tasks: Sequence[str]) -> None:
    if not encodings or not tasks:
        missing = "ENCODING is" if tasks else "--task is" if encodings else "ENCODING and --task are"
        raise click.UsageError(f"{missing} missing: a study needs both, or --study FILE")


_NAME = r"[A-Za-z_][\w.@]*="  # a setting or an option, which may be "scheme@label.option"


def _entry(text: str) -> tuple[str, dict[str, Any]]:
    """Return the label and the entry in a study for ENCODING or ENCODING:NAME=VALUE,NAME=VALUE.

    A comma separates two settings only if a name and "=" follow it: grid=4,5,base=10 sets `grid` and `base`.

    >>> _entry("rope_2d:grid=4,5,heads=2")
    ('rope_2d:grid=4,5,heads=2', {'encoding': 'rope_2d', 'options': {'grid': (4, 5)}, 'heads': 2})
    """
    from fastpe.base.validation import nearest
    from fastpe.encodings import registry
    from fastpe.experiments.study import SETTINGS

    found = None if Path(text).is_file() else re.search(f":(?={_NAME})", text)
    if found is None:
        return text, {}
    name, rest = registry.canonical(registry.resolve(text[: found.start()])), text[found.end() :]
    known = SETTINGS | registry.option_values(name).keys()
    entry: dict[str, Any] = {"encoding": name, "options": {}}
    for key, value in _pairs(text, re.split(f",(?={_NAME})", rest)):
        if key not in known:
            raise click.UsageError(f"{text}: setting or option {key!r} is unknown; {nearest(key, known)}")
        if key in entry or key in entry["options"]:
            raise click.UsageError(f"{text}: {key} is given twice")
        if key == "test_lengths":
            entry[key] = list(Lengths().convert(value, None, None))
        elif key in SETTINGS:
            entry[key] = _typed(value)
        else:
            try:
                entry["options"][key] = registry.parse_option(name, key, value)
            except ValueError as error:
                raise click.UsageError(f"{text}: {error}") from error
    return f"{name}:{rest}", entry


def _pairs(flag: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    found = [text.partition("=") for text in texts]
    for text, (_, equals, value) in zip(texts, found, strict=True):
        if not equals or not value:
            raise click.UsageError(f"{flag} must be KEY=VALUE, not {text!r}")
    return [(key.strip(), value) for key, _, value in found]


def _settings(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    return {key: _typed(value) for key, value in _pairs(flag, texts)}


def _lists(flag: str, texts: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in _pairs(flag, texts):
        if key in found:
            raise click.UsageError(f"{flag} {key} is given twice: give all its values at once")
        found[key] = [_typed(each.strip()) for each in value.split(",")]
    return found


def _typed(text: str) -> Any:
    """Read true, false or a number in ASCII digits; other text stays text. `TrainConfig` checks the types."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float) if text.isascii() else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (text.isascii() and number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise click.UsageError(f"--shard must be I/N, such as 1/4, not {text!r}")
    return int(number), int(of)
