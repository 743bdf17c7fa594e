"""``fastpe compare``: which encoding, on which task, how far, how sure; ``merge`` and ``report``, of its folders."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastpe.training.presets import PRESETS

from .output import INTERRUPTED, encoding_name, own_files, own_names, parse_lengths, print_json, task_name

if TYPE_CHECKING:
    from fastpe.experiments.study import Study
    from fastpe.experiments.study_folder import Compared


# Long: one parameter for every flag
@click.command()
@click.argument("encodings", nargs=-1, metavar="ENCODING[:NAME=VALUE,...]...")
@click.option("--task", "tasks", multiple=True, metavar="T", help="A task, see `fastpe tasks`; may be repeated.")
@click.option("--seeds", type=int, default=10, show_default=True, help="Runs of every encoding on every task.")
@click.option("--baseline", help="What the others are compared with.  [default: nope, or the first]")
@click.option("--lengths", metavar="L,L,...", help="Lengths to test at: 50,100 or 1-50,51-100.  [default: the task's]")
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="A protocol that all settings depart from.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of all runs; may be repeated.")
@click.option("--vary", multiple=True, metavar="KEY=V,V", help="Every encoding with each of these; may be repeated.")
@click.option(
    "--choose",
    multiple=True,
    metavar="KEY=V,V",
    help="Choose one by validation, for every encoding on every task; may be repeated.",
)
@click.option("--choose-seeds", type=int, metavar="N", help="Runs that choose, on seeds of their own.  [default: 3]")
@click.option("--margin", type=float, help="Differences within it count as none; of errors a part, 0.1.")
@click.option("--study", "file", type=click.Path(path_type=Path), help="A study in a file, as study.toml has it.")
@click.option(
    "--encoding", "own_encodings", multiple=True, metavar="FILE", callback=own_names(encoding_name),
    help="With --study: your own encoding file, if the study has its key; may be repeated. --task takes task files.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the study.  [default: compare]")
@click.option("--runs", type=click.Path(path_type=Path), help="Where the runs are, to share them.  [default: OUT/runs]")
@click.option("--workers", type=click.IntRange(min=1), help="Processes of one thread each.  [default: usable cores]")
@click.option(
    "--cluster", metavar="WHERE",
    help="On dask.distributed: local, a scheduler's address, or its file. Nothing is authenticated or encrypted unless "
    "dask is set up for TLS: whoever reaches the scheduler can run code here and on every worker. Use it only in a "
    "network where you trust everyone.",
)  # fmt: skip
@click.option("--shard", metavar="I/N", help="Make the I-th of N parts alone; `fastpe merge` joins them.")
@click.option("--dry-run", is_flag=True, help="Only say how many runs there are, and what they take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def compare(
    encodings: tuple[str, ...],
    tasks: tuple[str, ...],
    seeds: int,
    baseline: str | None,
    lengths: str | None,
    preset: str | None,
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
    """Train every ENCODING on every task with the same seeds, and compare them with a baseline.

    An encoding may have settings and options of its own behind a colon: abacus:positions=digits:20,heads=2 or
    alibi:slope=0.5. An encoding that needs places of digits, coordinates or a graph gets its default or is refused,
    see `fastpe encodings NAME`.

    Leaves a page to show, report.html, with results.csv, .json, .md, study.toml and all run folders in --out. What is
    finished is not run again; interrupted, the same command goes on.
    """
    from fastpe.experiments.compare import compare as make
    from fastpe.experiments.study import Study, varied

    from .progress import JobReporter

    if own_encodings and file is None:
        raise click.UsageError("--encoding is for --study: name the encodings of a new study without it")
    if file is not None:
        own_tasks = [each for each in tasks if each.endswith(".py")]
        own_names(task_name)(click.get_current_context(), None, own_tasks)
        tasks = tuple(each for each in tasks if each not in own_tasks)
        if any((encodings, tasks, settings, lengths, preset, vary, choose)) or choose_seeds is not None:
            raise click.UsageError("--study says it all: leave out encodings and the flags that make a study")
        study = Study.read(file)
    else:
        _refuse_missing(encodings, tasks)
        own = _settings("--set", settings)
        if lengths is not None:
            own["test_lengths"] = list(parse_lengths([each.strip() for each in lengths.split(",")]))
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
        except TypeError as error:  # a word where a number belongs
            raise click.UsageError(str(error)) from error
    part = None if shard is None else _shard(shard)
    if dry_run:
        _print_plan(study, as_json)
        return
    target = out or Path("compare")
    try:
        with JobReporter() as reporter:
            found = make(study, out=target, runs=runs, workers=workers, shard=part, cluster=cluster, progress=reporter)
    except KeyboardInterrupt:
        click.echo("fastpe: interrupted; the same command goes on from here", err=True)
        sys.exit(INTERRUPTED)
    if found is None:
        click.echo(f"shard {shard} is done: join all of them with fastpe merge {target} ... --out FOLDER", err=True)
    else:
        _print(found, as_json)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the whole study.  [required]")
@own_files("the study", "encoding", "task")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def merge(folders: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Join the shards of a study, made by `fastpe compare --shard`, and report on all of it."""
    from fastpe.experiments import existing_runs

    if out is None:
        existing_runs.shared_study(folders)  # what is wrong with a folder is more than a flag that is missing
        raise click.UsageError("--out is missing: name the folder of the whole study")
    _print(existing_runs.merge(folders, out), as_json)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of a report of single runs.  [default: report]")
@click.option("--runs", type=click.Path(path_type=Path), help="The study's runs, if not in DIR/runs.")
@click.option("--baseline", help="Of single runs: what the others are compared with.  [default: nope, or the first]")
@own_files("the study or a run", "encoding", "task")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def report(folders: tuple[Path, ...], out: Path | None, runs: Path | None, baseline: str | None, as_json: bool) -> None:
    """Make the page and the tables of a study again, from its runs; or those of single run folders."""
    from fastpe.experiments.existing_runs import report_runs, report_study
    from fastpe.experiments.study_folder import FILE

    if len(folders) == 1 and (folders[0] / FILE).exists():
        if out is not None or baseline is not None:
            raise click.UsageError("--out and --baseline are for single runs: a study has its own")
        _print(report_study(folders[0], runs), as_json)
        return
    if runs is not None:
        raise click.UsageError("--runs is for a study: single runs are named one by one")
    _print(report_runs(folders, out or Path("report"), baseline), as_json)


def _print(found: "Compared", as_json: bool) -> None:
    from fastpe.experiments.study_report import verdict

    if as_json:
        print_json(found.summary)
        return
    click.echo("\n".join(verdict(found.study, found.summary)))
    print_written(found)


def print_written(found: "Compared") -> None:
    """Say on standard error where a study's files are, and what would draw more of them."""
    from fastpe.experiments.study_figure import MISSING, available

    figures = "figures as .svg and .pdf" if available() else "figures as .svg"
    click.echo(f"\nwritten in {found.out}: report.html, results.csv, .json, .md, study.toml, {figures}", err=True)
    if not available():
        click.echo(f"no .pdf: {MISSING}", err=True)


def _print_plan(study: "Study", as_json: bool) -> None:
    """Runs, updates, FLOPs and time, as a few updates of each encoding on each task take just now."""
    from fastpe.doctor.machine import usable_cores
    from fastpe.experiments.plan import plan
    from fastpe.experiments.study_report import too_few

    from .progress import Reporter

    with Reporter() as reporter:
        found = plan(study, reporter.line)
    if as_json:
        print_json({**asdict(found), "cores": usable_cores()})
        return
    tuning = f", {found.tuning_runs:,} of them to choose; what is chosen counted as the dearest" if study.choose else ""
    click.echo(f"runs   {found.runs:,}{tuning}")
    click.echo(f"FLOPs  {found.flop:.3g}")
    click.echo(f"time   {found.seconds / 60:,.1f} min of one core, tests apart; {usable_cores()} cores here")
    for line in too_few(study):
        click.echo(line)


def _refuse_missing(encodings: Sequence[str], tasks: Sequence[str]) -> None:
    if not encodings or not tasks:
        missing = "ENCODING is" if tasks else "--task is" if encodings else "ENCODING and --task are"
        raise click.UsageError(f"{missing} missing: a study needs both, or --study FILE")


_NAME = r"[A-Za-z_][\w.@]*="  # of a setting or an option, which may be "scheme@label.option"


def _entry(text: str) -> tuple[str, dict[str, Any]]:
    """Label and entry in a study of what ENCODING or ENCODING:NAME=VALUE,NAME=VALUE stands for.

    A comma separates two settings only where a name and "=" follow: grid=4,5,base=10 are two.

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
            entry[key] = list(parse_lengths(value.split(",")))
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
            raise click.UsageError(f"{flag} {key} is given twice: all its values belong into one")
        found[key] = [_typed(each.strip()) for each in value.split(",")]
    return found


def _typed(text: str) -> Any:
    """A number, true or false where it looks like one, else the word; the settings check their own types."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise click.UsageError(f"--shard must be I/N, such as 1/4, not {text!r}")
    return int(number), int(of)
