"""A Sphinx extension that writes the pages of all encodings, tasks and commands, from the registries and from click.

The pages are MyST files in `reference/encodings`, `reference/tasks` and `reference/commands`. Texts of fastpe become
escaped HTML, by the functions that also make the atlas.
"""

import html
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx
from sphinx.util import logging

import fastpe
from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings import catalogue, registry
from fastpe.encodings.catalogue import Entry
from fastpe.encodings.encoding import FUNCTIONS, OUTCOMES, Encoding
from fastpe.encodings.slots import SLOTS
from fastpe.pictures.atlas import prose
from fastpe.pictures.atlas.card import Card, card
from fastpe.tasks import frame
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.task import Task
from fastpe.training.presets import SMALL
from fastpe_cli.main import GROUPS

_KINDS = {
    "answer": "Tokens, followed by an answer",
    "labels": "Tokens, with a label for all or some of them",
    "numbers": "Numbers, with a target number for each",
    "text": "Tokens of a file, with the next token as the target",
}
_SHOWN, _LENGTH = 3, 8  # sequences on the page of a task, and their length if the task has it


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", _write_all, priority=100)  # before autosummary and the gallery
    return {"parallel_read_safe": True}


def _write_all(app: Sphinx) -> None:
    folder = Path(app.srcdir, "reference")
    pages: dict[str, str] = {}
    log = logging.getLogger(__name__)
    every, broken = catalogue.entries()
    if broken:
        raise ValueError(f"encodings cannot be loaded: {broken}")
    for number, entry in enumerate(every, 1):
        log.info("encoding %d of %d: %s", number, len(every), entry.key)
        pages[f"encodings/{entry.key}.md"] = _encoding(entry)
    pages["encodings/index.md"] = _encodings(every)
    pages["slots.md"] = _slots()
    tasks, _ = TASKS.load_all()
    pages |= {f"tasks/{name}.md": _task(name, task) for name, task in tasks.items()}
    pages["tasks/index.md"] = _tasks(tasks)
    pages |= {f"commands/{command.name}.md": _command(command) for group in GROUPS.values() for command in group}
    pages["commands/index.md"] = _commands()
    for name, content in pages.items():
        write(folder / name, content)


def write(path: Path, content: str) -> None:
    """Write a page, unless it is there already, so that Sphinx reads only pages that have changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != content:
        path.write_text(content, "utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Parts of pages


def _raw(content: str) -> str:
    return f"```{{raw}} html\n{content.strip()}\n```\n" if content.strip() else ""


def _code(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells in HTML."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>\n'
        for first, *rest in rows
    )
    top = f"<thead><tr>{heads}</tr></thead>" if any(head) else ""
    return _raw(
        f'<div class="pst-scrollable-table-container"><table class="table">{top}<tbody>\n{lines}</tbody></table></div>'
    )


def _options(options: Mapping[str, Option]) -> str:
    if not options:
        return ""
    rows = [
        (f"<code>{name}</code>", f"<code>{html.escape(str(each.default))}</code>", html.escape(each.expected()),
         prose.inline(each.doc))
        for name, each in options.items()
    ]  # fmt: skip
    return "## Options\n\n" + _table(("option", "default", "values", "meaning"), rows)


def _toctree(names: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])


# ---------------------------------------------------------------------------------------------------------------------
# Encodings


def _encodings(every: Sequence[Entry]) -> str:
    parts = [
        f"# Encodings\n\nfastpe has {len(every)} position encodings. The page of an encoding has its formula, a "
        "picture, its options, its source and the results that were measured here. "
        "[Choosing an encoding](/guide/choosing.md) says which of them to try first. "
        'The <a href="../../atlas.html">atlas</a> shows all of them on one page with filters; '
        "`fastpe atlas` makes the same page on your machine.\n\n"
        "The column *longer sequences* gives published results on sequences longer than in training. *holds*: the "
        "quality holds without further training; *partly*: up to some length, or in some reports; *tuned*: after "
        "interpolation or more training; *fails*: it does not hold; -: we found no result.\n"
    ]
    for title, members in catalogue.grouped(every).items():
        rows = [
            f"| [{each.key}]({each.key}.md) | {_text(each.summary)} | {each.year or '-'} | {each.learned} "
            f"| {each.outcome if each.outcome in OUTCOMES else '-'} |"
            for each in members
        ]
        head = ["| encoding | what it is | year | learns | longer sequences |", "|---|---|---|---|---|"]
        parts.append(f"## {title}\n\n" + "\n".join([*head, *rows, ""]))
    return "\n".join([*parts, _toctree(each.key for each in every)])


def _slots() -> str:
    rows = [
        (f"<code>{name}</code>", html.escape(each.axes), html.escape(each.acts),
         ", ".join(f'<a href="encodings/{key}.html">{key}</a>' for key in _filling(name)))
        for name, each in SLOTS.items()
    ]  # fmt: skip
    return f"""# Slots

An encoding provides a few small arrays, its *slots*. Each slot is used at one fixed point of a transformer. Attention
and models accept slots from any source: `fastpe.attention` takes those of the score, rotation and output by name, and
`table` is added to the embeddings. Several encodings can be combined, as in `"wavelet+alibi"`.

Axes: N positions of queries, M of keys, C the width of the model, H heads, D the width of a head, K the largest offset.
An offset is the position of the key minus the position of the query; a slot with 2K + 1 rows has one row per offset.

{_table(("slot", "axes", "what it does", "encodings"), rows)}"""


def _filling(slot: str) -> list[str]:
    return [each.key for each in catalogue.entries()[0] if slot in each.slots]


def _text(words: str) -> str:
    """Escape a line of plain text for a table of MyST."""
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>|~$" else sign for sign in words)


def _encoding(entry: Entry) -> str:
    key, shown = entry.key, card(entry)
    told, encoding = shown.told, shown.encoding
    parts = [f"# {key}\n", _raw(f"<p>{told.title}</p>")]
    if entry.use_when:
        parts.append(_raw(f'<p class="use-when"><strong>Use it when</strong> {prose.inline(entry.use_when)}.</p>'))
    if told.formula:
        parts += ["## Formula\n", _raw(told.formula)]
    parts += ["## Picture\n", _pictures(shown), _usage(key, encoding)]
    parts += ["## Facts\n", _facts(shown), _options(encoding.options)]
    if told.rest:
        parts += ["## Details\n", _raw(told.rest)]
    parts += [_findings(shown), "## Source code\n", _source(key, encoding)]
    return "\n".join(part for part in parts if part)


def _pictures(shown: Card) -> str:
    """The figures of an encoding, or the sentence that says why there are none."""
    figures = [
        f"<figure><figcaption>{html.escape(title)}</figcaption>{svg}</figure>" for title, svg, _ in shown.figures
    ]
    notes = [html.escape(shown.missing)] if shown.missing else [f"{remark}." for remark in shown.remarks]
    said = "".join(f'<p class="note">{note}</p>' for note in notes)
    return _raw(f'<div class="pictures">{"".join(figures)}{said}</div>')


def _usage(key: str, encoding: Encoding) -> str:
    mask = ", causal=True" if encoding.direction == "causal" else ""
    flag = " --causal" if encoding.direction == "causal" else ""
    shell = [f"fastpe encodings {key}", f"fastpe show {key}"]
    if catalogue.suits_sequences(encoding):
        shell.append(f"fastpe train --encoding {key}{flag}")
    python = _code("python", "import fastpe", "", f'slots = fastpe.build("{key}", 128, heads=4{mask})')
    return "## Use\n\n" + python + "\n" + _code("sh", *shell)


def _facts(shown: Card) -> str:
    facts = {name: "<br>".join(lines) for name, lines in shown.facts}
    if others := shown.entry.not_to_be_confused:
        facts["Not to be confused with"] = "<br>".join(_other(name, why) for name, why in others.items())
    return _table((), facts.items())


def _other(name: str, why: str) -> str:
    known = name in registry.list_encodings()
    word = f'<a href="{html.escape(name)}.html">{html.escape(name)}</a>' if known else html.escape(name)
    return f"{word}: {prose.inline(why)}"


def _findings(shown: Card) -> str:
    parts = []
    for study in shown.studies:
        page = Path(study.page)
        link = f"[{page.name}](/results/{page.stem}.md)" if page.suffix == ".md" else f"`{page}`"
        said = f" **{study.said}**" if study.said else ""
        parts.append(f"### {study.title}\n\n{study.about}{said} All results: {link}.\n")
        if study.rows:
            cells = ([html.escape(cell) for cell in row] for row in study.rows)
            parts.append(_table([html.escape(cell) for cell in study.head], cells))
    return "\n".join(["## Results in this repository\n", *parts]) if parts else ""


def _source(key: str, encoding: Encoding) -> str:
    """The path of the file, and a function of the file, which `sphinx.ext.viewcode` links to its source."""
    path = registry.file_of(key).relative_to(Path(fastpe.__file__).parent.parent)
    module = ".".join(path.with_suffix("").parts)
    found = {name: getattr(encoding, name) for name in FUNCTIONS}
    own = [name for name, each in found.items() if _place(each) == (module, name)]
    said = f"`{path}`\n"
    if not own:
        return said
    names = ", ".join(inspect.signature(found[own[0]]).parameters)
    return f"{said}\n```{{py:function}} {own[0]}({names})\n:module: {module}\n:no-index:\n```\n"


def _place(function: Any) -> tuple[str, str]:
    """The module and the name of a function."""
    return getattr(function, "__module__", ""), getattr(function, "__name__", "")


# ---------------------------------------------------------------------------------------------------------------------
# Tasks


def _tasks(tasks: Mapping[str, Task]) -> str:
    parts = [
        f"# Tasks\n\nA model can be trained on {len(tasks)} tasks: `fastpe train --task NAME`, or "
        '`fastpe.TrainConfig(..., task="NAME")`. [Your own encodings and tasks](/guide/own.md) says how to write one.\n'
    ]
    for kind, title in _KINDS.items():
        rows = [f"| [{name}]({name}.md) | {_text(task.summary)} |" for name, task in tasks.items() if task.kind == kind]
        if rows:
            parts.append(f"## {title}\n\n" + "\n".join(["| task | what it is |", "|---|---|", *rows, ""]))
    return "\n".join([*parts, _toctree(tasks)])


def _task(name: str, task: Task) -> str:
    told = prose.parts(TASKS.page(name))
    parts = [f"# {name}\n", _raw(f"<p>{told.title}</p>{told.formula}{told.rest}"), "## Facts\n"]
    facts = [("Kind", f"<code>{task.kind}</code>: {_KINDS[task.kind].lower()}")]
    drawn = ""
    if task.kind != "text":
        chosen = choose(name)
        least, step, most = chosen.lengths
        length = chosen.lengths.next(_LENGTH)
        facts.append(("Lengths of inputs", f"{least} to {most:,}" + (f" in steps of {step}" if step > 1 else "")))
        if (chance := chosen.chance(length)) is not None:
            whole = "" if chance.exact is None else f", whole answers {chance.exact:.3g}"
            facts.append((f"Chance at length {length}", f"tokens {chance.token:.3g}{whole}"))
        for what, level in chosen.shortcuts(length).items():
            whole = "" if level.exact is None else f", whole answers {level.exact:.3g}"
            facts.append((f"Shortcut at length {length}: {html.escape(what)}", f"tokens {level.token:.3g}{whole}"))
        for test, options in task.tests.items():
            listed = ", ".join(f"{option}={value}" for option, value in options.items())
            facts.append((f"Test {html.escape(test)}", f"<code>{html.escape(listed)}</code>"))
        found = frame.draw(chosen, Stream(0, "page"), _SHOWN, length)
        pairs = zip(found.inputs.tolist(), found.answers.tolist(), strict=True)
        lines = [f"{_words(chosen, x)} -> {_words(chosen, y)}" for x, y in pairs]
        drawn = "## Sequences\n\nInput and answer:\n\n" + _code("text", *lines)
    facts.append(("Models", "causal only" if task.causal else "causal and bidirectional"))
    if task.source:
        facts.append(("Source", prose.inline(task.source)))
    parts += [_table((), facts), _recipe(task), _options(task.options), drawn]
    return "\n".join(part for part in parts if part)


def _words(chosen: Any, values: Sequence[Any]) -> str:
    if chosen.task.kind == "numbers":
        return " ".join(f"{value:.2f}" for value in values)
    while chosen.task.kind == "answer" and values and values[-1] < 0:
        values = values[:-1]
    return " ".join("." if value < 0 else chosen.word(value) for value in values)


def _recipe(task: Task) -> str:
    """The settings with which small models solve the task, and the runs that show it."""
    found = task.recipe
    if found is None:
        return ""
    settings = {**SMALL, **found.settings}
    measured = f"{found.encoding}: {found.solved} of 10 seeds, {found.seconds:.3g} s each on one core"
    rows = [(f"<code>{html.escape(key)}</code>", html.escape(str(value))) for key, value in settings.items()]
    return "## Recipe\n\n" + _table(("setting", "value"), [*rows, ("solved", html.escape(measured))])


# ---------------------------------------------------------------------------------------------------------------------
# Commands


class _Recorder(click.HelpFormatter):
    """Collects what `--help` prints as MyST: paragraphs, and a table for each section."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Keep the line of usage as code."""
        self.parts.append(_code("sh", f"{prog} {args}"))

    def write_heading(self, heading: str) -> None:
        """Begin a section."""
        self.parts.append(f"## {heading}\n")

    def write_paragraph(self) -> None:
        """Paragraphs are separate already."""

    def write_text(self, text: str) -> None:
        """Keep a text: paragraphs are HTML, and paragraphs that click must not wrap are code."""
        for block in inspect.cleandoc(text).split("\n\n"):
            if block.startswith("\b"):
                self.parts.append(_code("text", *block.split("\n")[1:]))
            elif block.strip():
                self.parts.append(_raw(f"<p>{prose.inline(' '.join(block.split()))}</p>"))

    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **more: Any) -> None:
        """Keep a list of definitions as a table."""
        cells = [(f"<code>{html.escape(name)}</code>", prose.inline(" ".join(said.split()))) for name, said in rows]
        self.parts.append(_table((), cells))


def _command(command: click.Command) -> str:
    context = click.Context(command, info_name=f"fastpe {command.name}")
    recorder = _Recorder()
    command.format_help(context, recorder)
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    parts = [f"# fastpe {command.name}\n", *recorder.parts]
    for each in subcommands:
        own = _Recorder()
        each.format_help(click.Context(each, info_name=f"fastpe {command.name} {each.name}"), own)
        parts += [f"## fastpe {command.name} {each.name}\n", *(part.replace("## ", "### ") for part in own.parts)]
    return "\n".join(parts)


def _commands() -> str:
    parts = [
        "# Commands\n\nEach page has what `fastpe COMMAND --help` prints. All commands print errors as one line and "
        "end with status 0 (success), 1 (failure) or 2 (wrong request).\n"
    ]
    for title, commands in GROUPS.items():
        rows = [
            f"| [fastpe {each.name}]({each.name}.md) | {_text(each.get_short_help_str(200))} |" for each in commands
        ]
        parts.append(f"## {title}\n\n" + "\n".join(["| command | what it does |", "|---|---|", *rows, ""]))
    return "\n".join([*parts, _toctree(str(each.name) for group in GROUPS.values() for each in group)])
