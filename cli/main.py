"""The command ``fastpe``: a group with one command per file."""

import click

import fastpe

from .atlas import atlas
from .bench import bench
from .check import check
from .compare import compare, merge, report
from .doctor import doctor
from .encodings import encodings
from .evaluate import evaluate
from .generate import generate
from .output import Commands
from .reproduce import reproduce
from .show import show
from .tasks import tasks
from .theory import theory
from .train import train


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fastpe.__version__, prog_name="fastpe", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Position encodings for transformers: train, test and compare them on a CPU."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


MAKE = (train, evaluate, generate, compare, merge, report, reproduce)
LOOK = (encodings, atlas, tasks, check, show, theory, doctor, bench)
for command in (*MAKE, *LOOK):
    main.add_command(command)
