"""The command ``fastpe``: a group with one file for each command."""

import click

import fastpe

from .atlas import atlas
from .bench import bench
from .check import check
from .compare import compare, merge, report
from .doctor import doctor
from .encodings import encodings
from .evaluate import evaluate
from .export import export
from .generate import generate
from .inspect import inspect
from .output import Commands
from .reproduce import reproduce
from .show import show
from .tasks import tasks
from .theory import theory
from .train import train

GROUPS = {
    "Start here": (encodings, train, compare),
    "Encodings": (show, atlas, check),
    "Training": (tasks, evaluate, inspect, generate, export),
    "Studies": (merge, report),
    "Theory and paper": (theory, reproduce),
    "Maintenance": (doctor, bench),
}
_COMPLETION = """
\b
Completion with Tab of commands, options, encodings, tasks, runs and files:
  bash  eval "$(_FASTPE_COMPLETE=bash_source fastpe)"   # in ~/.bashrc
  zsh   eval "$(_FASTPE_COMPLETE=zsh_source fastpe)"    # in ~/.zshrc
  fish  _FASTPE_COMPLETE=fish_source fastpe | source    # in config.fish
"""


@click.group(
    cls=Commands, groups=GROUPS, invoke_without_command=True, epilog=_COMPLETION,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.version_option(fastpe.__version__, prog_name="fastpe", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Train, test and compare position encodings for transformers on a CPU.

    `fastpe COMMAND --help` lists the options of a command.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
