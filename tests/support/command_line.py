"""The command line, called in this process: small settings of a training, and what a command answers."""

from click.testing import CliRunner

from fastpe_cli.main import main

SIZES = {"width": 8, "hidden": 8, "layers": 1, "train-length": 6, "samples": 20, "batch": 8, "epochs": 2}
TINY = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]
TINY += ["--test-lengths", "6,9"]


def fastpe(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="fastpe")


def refused(status, *arguments):
    """The one line that a command says before it ends with `status`."""
    result = fastpe(*arguments)
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("fastpe: error: ")
    assert "Traceback" not in result.stderr
    return line
