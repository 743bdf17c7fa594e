"""``fastpe check``: test one encoding or task, built-in or the user's own."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import FAILED, print_json
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.doctor.diagnosis import Verdict


@click.command()
@click.argument("name", required=False, metavar="FILE|KEY")
@click.option(
    "--template", type=click.Choice(("encoding", "task")), is_flag=False, flag_value="encoding",
    help="Print an example file of an encoding or a task, as a template for your own. It passes all checks.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def check(name: str | None, template: str | None, as_json: bool) -> None:
    """Check an encoding or a task.

    FILE is a Python file that defines your own encoding or task, such as ./mine.py. KEY is a built-in or registered
    encoding or task.

    The command prints one line for each check. For an encoding, it checks options and initial values. It compares the
    arrays that the encoding fills with its reference, in several memory layouts, and gradients with finite differences.
    It tests whether the encoding does what its file states beyond the training length, and whether it distinguishes
    left from right as stated. Finally, it compares a whole model with the reference. For a task, it checks options, the
    drawn sequences and their random streams, tokens, lengths, answers, and the chance level. Remarks name facts that
    the file should state but does not. The exit status is 1 if a check fails.
    """
    if template is not None:
        if name is not None:
            raise click.UsageError("--template cannot be combined with FILE or KEY")
        click.echo(_template(template), nl=False)
        return
    if name is None:
        raise click.UsageError("FILE or KEY is missing: fastpe check ./mine.py, or fastpe check alibi")
    word, key = _known(name)
    if "+" in key:
        raise click.UsageError(f"FILE or KEY must be a single encoding, not the sum {key!r}")
    from fastpe.doctor import diagnosis, encoding_checks, task_checks

    from .progress import Reporter, counted

    verdicts, suite = [], encoding_checks if word == "encoding" else task_checks
    with Reporter() as reporter:
        for each in counted(reporter, list(suite.checks(key)), lambda each: each.name):
            verdicts.append(diagnosis.judge(each))
            if not as_json:
                click.echo(_line(verdicts[-1]))
        remarks = suite.remarks(key)
    passed = all(verdict.passed for verdict in verdicts)
    if as_json:
        checks = [vars(verdict) for verdict in verdicts]
        print_json({"schema": 1, word: key, "passed": passed, "checks": checks, "remarks": remarks})
    else:
        for remark in remarks:
            click.echo(f"remark: {remark}")
        failed = sum(not verdict.passed for verdict in verdicts)
        what = f"{failed} of {len(verdicts)} checks failed" if failed else f"all {len(verdicts)} checks passed"
        click.echo(f"\n{key}: {what}")
        if passed:
            next_step(_next(word, name))
    if not passed:
        sys.exit(FAILED)


def _next(word: str, name: str) -> dict[str, str]:
    if word == "task":
        return {
            f"fastpe tasks {name}": "its page and some sequences",
            f"fastpe train --encoding rope --task {name}": "train a small model on it",
        }
    return {
        f"fastpe show {name}": "plot it",
        f"fastpe train --encoding {name} --task reverse": "train a small model with it",
        f"fastpe compare {name} rope nope --task reverse": "compare it with others",
    }


def _template(word: str) -> str:
    from fastpe import encodings, tasks

    return Path({"encoding": encodings, "task": tasks}[word].__path__[0], "template.py").read_text("utf-8")


def _known(name: str) -> tuple[str, str]:
    """Return "encoding" or "task", and the key; the user's own file is registered."""
    from fastpe.base.own import defines
    from fastpe.encodings import registry
    from fastpe.tasks.registry import TASKS

    is_task = defines(Path(name), "TASK") if name.endswith(".py") else name in TASKS.names()
    if is_task and name not in registry.list_encodings():
        key = TASKS.resolve(name)
        if TASKS.get(key).kind == "text":
            raise click.UsageError(f"task {name!r} cannot be checked: it reads your own text and draws no sequences")
        return "task", key
    return "encoding", "+".join(registry.split(registry.resolve(name)))


def _line(verdict: "Verdict") -> str:
    head = f"{verdict.name:10}  {verdict.dtype}"
    error = "" if not verdict.error else f"error {verdict.error:.2g}, bound {verdict.bound:.2g}"
    if verdict.passed:
        return f"ok      {head}  {error}".rstrip()
    return f"FAILED  {head}  {'; '.join(text for text in (error, verdict.note) if text)}"
