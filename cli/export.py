"""``fastpe export``: write a trained model for other software."""

import shlex
from pathlib import Path

import click

from .output import own_files
from .terminal import next_step


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--hf",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    required=True,
    help="New or empty folder, in the format of Hugging Face's transformers.",
)
@click.option(
    "--architecture",
    metavar="NAME",
    help="Architecture of transformers, such as gpt2 or llama.  [default: the first that computes the model]",
)
@click.option(
    "--eos",
    metavar="SYMBOL",
    help="Symbol that ends a text and is the padding. If texts contain it, transformers leaves it out of decoded text. "
    "[default: byte 0 for bytes, none for characters]",
)
@own_files("the run", "encoding", "task")
def export(run: Path, folder: Path, architecture: str | None, eos: str | None) -> None:
    """Write a trained model for Hugging Face's transformers.

    RUN is a run folder or model file. AutoModelForCausalLM.from_pretrained(FOLDER) reads the model, and
    AutoTokenizer.from_pretrained(FOLDER) its vocabulary. If no architecture computes the model, the error names the
    nearest one and what it needs.
    """
    from fastpe.huggingface.export import to_hf
    from fastpe.training import run_folder

    model = run_folder.load(run)
    name = to_hf(model, folder, architecture=architecture, eos=eos)
    click.echo(f"written: {folder}, a {name}")
    if model.vocabulary is not None and model.vocabulary.kind != "ids":
        next_step({f"fastpe generate --hf {shlex.quote(str(folder))} TEXT": "generate text with the exported model"})
