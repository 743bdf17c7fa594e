"""``fastpe tasks``: list the tasks, or print the page of one."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .options import TASK, Integer
from .output import print_json
from .terminal import next_step, print_markdown, print_options

if TYPE_CHECKING:
    from fastpe.tasks.task import Task

_KINDS = {
    "answer": "tokens, followed by an answer",
    "labels": "tokens, with a label for all or some of them",
    "numbers": "numbers, with a target number for each",
    "text": "tokens of a file, with the next token as the target",
}
_SHOWN = 3  # sequences on a page


@click.command()
@click.argument("name", required=False, type=TASK)
@click.option("--kind", type=click.Choice(tuple(_KINDS)), help="List only tasks of this kind.")
@click.option(
    "--length",
    type=Integer(1),
    help="Length of the inputs on a page.  [default: 8, or the smallest longer length that the task has]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def tasks(name: str | None, kind: str | None, length: int | None, as_json: bool) -> None:
    """List the tasks, or print the page of one.

    NAME is a task, or a file that defines your own, such as ./mine.py. The page of a task shows some of its sequences.
    """
    from fastpe.tasks.registry import TASKS

    if name is not None:
        if kind is not None:
            raise click.UsageError("--kind applies to the list: give either --kind or NAME")
        found = TASKS.get(name)
        if as_json and length is not None:
            raise click.UsageError("--length cannot be combined with --json, which prints no sequences")
        if as_json:
            print_json({**_facts(name, found), "page": TASKS.page(name)})
        else:
            _print_page(name, found, length)
            text = found.kind == "text"
            once, all_runs = (" --data FILE", " --set data=FILE") if text else ("", "")
            next_step({
                f"fastpe train --encoding rope --task {name}{once}": "train a small model on it",
                f"fastpe compare alibi rope nope --task {name}{all_runs}": "compare encodings on it",
            })  # fmt: skip
        return
    if length is not None:
        raise click.UsageError("--length needs NAME: it is the length of the sequences on a page")
    every, problems = TASKS.load_all()
    for problem in problems.values():
        click.echo(f"fastpe: {problem}", err=True)
    chosen = {key: each for key, each in every.items() if kind in (None, each.kind)}
    if as_json:
        print_json([_facts(key, each) for key, each in chosen.items()])
        return
    for each, meaning in _KINDS.items():
        rows = [(key, task.summary) for key, task in chosen.items() if task.kind == each]
        if rows:
            click.echo(f"{each}: {meaning}")
            width = max(map(len, every))
            click.echo("\n".join(f"  {key:{width}}  {summary}" for key, summary in rows) + "\n")
    click.echo(
        "`fastpe tasks NAME` prints the page of a task and some sequences; `fastpe train --task NAME` trains on it."
    )


def _print_page(name: str, task: "Task", length: int | None) -> None:
    from fastpe.base.random import Stream
    from fastpe.tasks import frame, sizes
    from fastpe.tasks.registry import TASKS, choose

    if task.kind == "text":
        print_markdown(f"# {name}\n\n{TASKS.page(name)}\n\n## At a glance\n\n- kind {task.kind}: {_KINDS[task.kind]}")
        _print_options(task)
        return
    chosen = choose(name)
    least, step, most = chosen.lengths
    if length is None:  # the first length from 8 on, or the largest
        shown = chosen.lengths.next(8) if chosen.lengths.next(8) <= most else int(chosen.lengths.within(1, most)[-1])
    else:
        shown = length
    sizes.check_length(chosen, shown, "length")
    chance, drawn = chosen.chance(shown), frame.draw(chosen, Stream(0, "page"), _SHOWN, shown)
    print_markdown(f"# {name}\n\n{TASKS.page(name)}")
    facts = [f"kind {task.kind}: {_KINDS[task.kind]}"]
    facts.append(f"input lengths: {least} to {most:,}" + (f" in steps of {step}" if step > 1 else ""))
    if task.causal:
        facts.append("only for causal models")
    if chance is not None:
        whole = "" if chance.exact is None else f", answers {chance.exact:.3g}"
        facts.append(f"chance level at length {shown}: tokens {chance.token:.3g}{whole}")
    for what, level in chosen.shortcuts(shown).items():
        whole = "" if level.exact is None else f", answers {level.exact:.3g}"
        facts.append(f"shortcut at length {shown}, {what}: tokens {level.token:.3g}{whole}")
    for test, options in task.tests.items():
        facts.append(f"test {test}: " + ", ".join(f"{option}={value}" for option, value in options.items()))
    click.echo()
    print_markdown("## At a glance\n\n" + "\n".join(f"- {fact}" for fact in facts))
    _print_options(task)
    _print_recipe(name, task)
    click.echo("\nsequences: input -> answer")
    for x, y in zip(drawn.inputs.tolist(), drawn.answers.tolist(), strict=True):
        click.echo(f"  {_written(chosen.word, task.kind, x)} -> {_written(chosen.word, task.kind, y)}")


def _print_options(task: "Task") -> None:
    if task.options:
        click.echo()
        print_options("--task-option", task.options)


def _print_recipe(name: str, task: "Task") -> None:
    from fastpe.training.presets import preset

    config = preset("recipe", "nope" if task.recipe is None else task.recipe.encoding, task=name)
    tokens = task.kind != "numbers"
    lengths = f"lengths 1 to {config.train_length}" if tokens else f"length {config.train_length}"
    stops = f", until {config.validation} validation answers are right" if tokens else ""
    lines = [
        f"{config.layers} layers of width {config.width}, {config.heads} heads, causal",
        *(f"task option {key}={value}" for key, value in config.task_options.items()),
        f"training: {lengths}, at most {config.steps:,} updates of {config.batch} sequences{stops}",
        f"learning rate {config.lr:g}, {config.warmup} warm-up updates, then {config.decay} decay",
        f"tests: lengths {', '.join(map(str, config.test_lengths))}, {config.test_sequences} sequences each",
    ]
    if task.recipe is not None:
        found, solved = task.recipe, "99 % of answers right" if tokens else "1 % of the error of zeros"
        lines.append(
            f"solved ({solved} at the training {lengths.split()[0]}): {found.encoding}, {found.solved} of 10 seeds, "
            f"{found.seconds:.3g} s each on one core of an AMD EPYC"
        )
        if found.remark:
            lines.append(found.remark)
    click.echo()
    print_markdown(
        "## Recipe\n\nThe default of `fastpe train --task` and `fastpe compare`:\n\n"
        + "".join(f"- {line}\n" for line in lines)
    )


def _written(word: Any, kind: str, values: list[Any]) -> str:
    if kind == "numbers":
        return " ".join(f"{value:.2f}" for value in values)
    while kind == "answer" and values and values[-1] < 0:
        values = values[:-1]
    return " ".join("." if value < 0 else word(value) for value in values)


def _facts(name: str, task: "Task") -> dict[str, Any]:
    return {
        "name": name,
        "summary": task.summary,
        "kind": task.kind,
        "causal": task.causal,
        "source": task.source,
        "recipe": None if task.recipe is None else asdict(task.recipe),
        "tests": {test: dict(options) for test, options in task.tests.items()},
        "options": {
            key: {"default": option.default, "expected": option.expected(), "doc": option.doc}
            for key, option in task.options.items()
        },
    }
