"""``fastpe generate``: sample text from a trained model."""

import codecs
import shlex
import sys
import time
from pathlib import Path

import click

from .options import ENCODING, INTEGER, NUMBER
from .output import INTERRUPTED, Source, print_json, use_threads
from .terminal import next_step

_SPELLED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in b"\n\t"}


@click.command()
@click.argument("words", metavar="RUN PROMPT", nargs=-1)
@click.option(
    "--hf",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A model in the format of Hugging Face's transformers, in place of RUN.",
)
@click.option("--length", type=INTEGER, default=500, show_default=True, help="Number of tokens to generate.")
@click.option(
    "--temperature",
    type=NUMBER,
    default=1.0,
    show_default=True,
    help="Sampling temperature; 0 always takes the most likely token.",
)
@click.option("--top-k", type=INTEGER, help="Sample only from the k most likely tokens.")
@click.option("--top-p", type=NUMBER, help="Sample only from the most likely tokens that together have probability p.")
@click.option("--seed", type=INTEGER, default=0, show_default=True, help="Seed of the sampling.")
@click.option(
    "--no-cache",
    "cache",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not cache keys and values: process the whole text again for each token.",
)
@click.option("--encoding", type=ENCODING, help="File that defines your own encoding, if the run uses one.")
@click.option(
    "--threads",
    type=INTEGER,
    help="Number of threads. It has no effect if keys and values are cached.  [default: all cores]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, at the end.")
def generate(
    words: tuple[str, ...],
    hf: Path | None,
    length: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    cache: bool,
    encoding: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Generate text that continues PROMPT.

    RUN is the folder of a run whose task is text, or a model file. The prompt and the generated text are printed on
    standard output, the speed on standard error. To start with a line break, give $'\\n' as the prompt.
    """
    *before, prompt = words or ("",)
    if len(words) != 1 + (hf is None):
        raise click.UsageError("give RUN and PROMPT, or --hf FOLDER and PROMPT")
    run = Source(Path(before[0])) if hf is None else Source(hf, hf=True)
    use_threads(threads)
    from fastpe.model.generation import Generation, Sampling

    from .progress import Reporter

    model = run.model
    if encoding not in (None, model.config.encoding):
        raise click.UsageError(f"run {run} has the encoding {model.config.encoding!r}, not {encoding!r}")
    symbols = run.vocabulary
    sampling = Sampling(temperature, top_k, top_p, seed)
    generation = Generation(model, model.encoded("prompt", prompt), length, sampling, cache=cache, threads=threads)
    written, decoder = [], codecs.getincrementaldecoder("utf-8")("replace")
    if not as_json:
        _tell(prompt)
    begin = seconds = 0.0
    with Reporter():
        try:
            for token in generation:
                written.append(token)
                seconds = time.perf_counter() - begin if begin else 0.0
                begin = begin or time.perf_counter()  # without the first token, which includes the prompt and compiling
                if not as_json:
                    _tell(decoder.decode(symbols.bytes_of([token])))
        except KeyboardInterrupt:
            _end(as_json, decoder)
            click.echo(f"fastpe: interrupted after {len(written)} of {length} tokens", err=True)
            sys.exit(INTERRUPTED)
    rate = (len(written) - 1) / seconds if seconds else None
    if as_json:
        text = symbols.continuation(written)
        facts = {"run": str(run), "prompt": prompt, "text": text, "tokens": written, "seed": seed}
        print_json({**facts, "cached": generation.cached, "tokens_per_second": rate})
        return
    _end(as_json, decoder)
    how = "with cached keys and values" if generation.cached else "without cached keys and values"
    pace = f", {rate:,.0f} tokens/s" if rate else ""
    click.echo(f"{len(written):,} tokens{pace}, {how}", err=True)
    if not run.hf:
        next_step({f"fastpe evaluate {shlex.quote(str(run))} --length-curve": "loss beyond the training length"})


def _tell(text: str) -> None:
    """Print text at once and replace what the output cannot encode; on a terminal, also escape control characters."""
    if sys.stdout.isatty():
        text = text.translate(_SPELLED)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _end(as_json: bool, decoder: codecs.IncrementalDecoder) -> None:
    if not as_json:
        _tell(decoder.decode(b"", final=True) + "\n")
