"""Pages of the command line: nothing is lost or cut, prose has 80 columns, terminals get rendered Markdown."""

import contextlib
import io
import re

import click
import pytest
from click.testing import CliRunner
from command_line import fastpe, refused

from fastpe.encodings import registry
from fastpe.tasks.registry import TASKS
from fastpe_cli import terminal
from fastpe_cli.main import main
from fastpe_cli.options import Grouped

PAGES = {name: registry.page(name) for name in registry.list_encodings()} | {
    name: TASKS.page(name) for name in TASKS.names()
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch):
    """Return a function that returns what a call prints on a terminal of 80 columns, or without one."""
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def printed(stream, call, *arguments):
        found = stream()
        with contextlib.redirect_stdout(found), contextlib.redirect_stderr(found):
            call(*arguments)
        return found.getvalue()

    return printed


def words(text):
    """The text without markup, bullets and spaces."""
    return re.sub(r"[*`\s•-]", "", text)


def commands(command=main, path=()):
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_help_has_80_columns_and_uncut_summaries(path):
    text = fastpe(*path, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    for command in main.commands.values() if path == () else ():
        assert re.search(rf"^  {command.name} +{re.escape(command.get_short_help_str(1000))}$", text, re.M)


def test_help_lists_every_command_in_one_group():
    titles = re.findall(r"^(\S.*):$", fastpe("--help").stdout, re.M)
    assert titles == [
        "Options", "Start here", "Encodings", "Training", "Studies", "Theory and paper", "Maintenance",
    ]  # fmt: skip


def test_no_page_loses_text_or_exceeds_80_columns(capsys):
    for name, page in PAGES.items():
        terminal.print_markdown(page)
        shown = capsys.readouterr().out
        assert words(shown) == words(page), name
        assert max(map(len, shown.splitlines())) <= 80, name


def test_markdown_is_rendered_on_a_terminal_and_plain_elsewhere(printed):
    page = "# title\n\nA **bold** word and `code_1`.\n**Next**: more.\n\n    a * b\n\n- item"
    shown = printed(Terminal, terminal.print_markdown, page)
    assert "\x1b[1mbold\x1b[0m" in shown
    assert "`" not in shown
    assert "**" not in shown
    assert "    a * b" in click.unstyle(shown)
    plain = printed(io.StringIO, terminal.print_markdown, page)
    assert plain == "title\n\nA bold word and `code_1`.\n\nNext: more.\n\n    a * b\n\n • item\n"


def test_no_color_leaves_no_colours(printed, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = printed(Terminal, terminal.print_markdown, "# title\n\n`code`")
    shown += printed(Terminal, terminal.next_step, {"fastpe doctor": "check"})
    assert "title" in shown
    assert "next: fastpe doctor" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)


def test_the_next_step_is_shown_on_a_terminal_only(printed):
    commands = {"fastpe show x": "plot it", "fastpe train": "train"}
    lines = click.unstyle(printed(Terminal, terminal.next_step, commands)).splitlines()
    assert lines == ["next: fastpe show x  plot it", "      fastpe train   train"]
    assert printed(io.StringIO, terminal.next_step, commands) == ""


def test_settings_are_a_table_on_a_terminal_and_one_line_elsewhere(printed):
    settings = {f"setting_{n}": n for n in range(9)}
    first, *rows = click.unstyle(printed(Terminal, terminal.print_settings, "recipe", settings)).splitlines()
    assert first == "recipe, where it differs from the defaults:"
    assert len(rows) == 2
    assert max(map(len, rows)) <= 80
    plain = printed(io.StringIO, terminal.print_settings, "recipe", settings)
    assert plain == f"recipe: {', '.join(f'{name}={value}' for name, value in settings.items())}\n"


# Options --------------------------------------------------------------------------------------------------------------


def parsed(command, *arguments):
    with command.make_context(command.name, list(arguments)) as context:
        return context.params


def test_earlier_names_of_options_are_accepted_and_not_listed():
    train, compare, evaluate = (main.commands[name] for name in ("train", "compare", "evaluate"))
    assert parsed(train, "--length", "9")["train_length"] == 9
    assert parsed(train, "--test-length", "9", "--test-length=5-8")["test_lengths"] == ((9,), ("5-8",))
    assert parsed(compare, "nope", "--lengths", "4,5-8")["test_lengths"] == ((4, "5-8"),)
    assert parsed(evaluate, "run", "--lengths", "4", "--sequences", "3")["test_sequences"] == 3
    for command in (train, compare, evaluate):
        text = fastpe(command.name, "--help").stdout
        assert not re.search(r"--(length|test-length|sequences)\b(?!s|-)", text)
        assert isinstance(command, Grouped)


def test_one_option_name_for_each_length():
    for name, options in {"train": {"--train-length", "--test-lengths"}, "evaluate": {"--test-lengths"},
                          "compare": {"--train-length", "--test-lengths"}}.items():  # fmt: skip
        known = {flag for each in main.commands[name].params for flag in each.opts if "length" in flag}
        assert options <= known, name


def test_compare_lists_its_settings_and_offers_the_nearest_name():
    text = fastpe("compare", "--set", "help").stdout
    assert re.search(r"^train_length +50 +Training length", text, re.M)
    study = ("compare", "nope", "--task", "reverse", "--set", "length=9")
    assert "setting 'length' is unknown; did you mean 'train_length'?" in refused(2, *study)


def test_a_log_without_a_writer_is_refused_before_any_work(folder, monkeypatch):
    from fastpe.training import logging

    monkeypatch.setattr(logging, "_WRITERS", ("no_such_package",))
    assert "--log: the writer" in refused(2, "train", "--encoding", "nope", "--log", "tensorboard")
    assert list(folder.iterdir()) == []


def test_runs_and_files_are_completed_by_the_shell():
    variables = {"_FASTPE_COMPLETE": "bash_complete", "COMP_WORDS": "fastpe evaluate runs/ro", "COMP_CWORD": "2"}
    found = CliRunner().invoke(main, [], prog_name="fastpe", env=variables).stdout
    assert found == "file,runs/ro\n"
