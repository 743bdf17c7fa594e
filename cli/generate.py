"""``fastpe generate``: let a model that was trained on a text write."""

import codecs
import sys
import time
from pathlib import Path

import click

from .output import INTERRUPTED, encoding_name, print_json, use_threads

_SPELLED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in b"\n\t"}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("prompt")
@click.option("--length", type=int, default=500, show_default=True, help="Tokens to write.")
@click.option(
    "--temperature", type=float, default=1.0, show_default=True, help="Below 1 likelier, 0 the likeliest token always."
)
@click.option("--top-k", type=int, help="Draw from so many of the likeliest tokens.")
@click.option("--top-p", type=float, help="Draw from the fewest tokens that have this probability together.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which text it is, of those that can be drawn.")
@click.option("--no-cache", "cache", is_flag=True, flag_value=False, default=True, help="Read all anew for each token.")
@click.option(
    "--encoding", callback=encoding_name, help="Its encoding, where that is a file: ./mine.py, as in training."
)
@click.option("--threads", type=int, help="Threads, where all is read anew for every token.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, once all is written.")
def generate(
    run: Path,
    prompt: str,
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
    """Write on from PROMPT with the model in RUN, a run folder whose task is text, or a model's file.

    Standard output gets the prompt and what follows, as it is written; standard error how fast that was. A prompt of
    one line break is $'\\n'.
    """
    use_threads(threads)
    from fastpe.model.generation import Generation, Sampling
    from fastpe.training import run_folder

    from .progress import Reporter

    model = run_folder.load(run)
    if encoding not in (None, model.config.encoding):
        raise click.UsageError(f"run {run} has the encoding {model.config.encoding!r}, not {encoding!r}")
    if model.vocabulary is None:
        raise click.UsageError(f"{run} holds no model of a text: train one with --task text --data FILE")
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
                begin = begin or time.perf_counter()  # the first token waits for the prompt, and for compiling
                if not as_json:
                    _tell(decoder.decode(model.vocabulary.bytes_of([token])))
        except KeyboardInterrupt:
            _end(as_json, decoder)
            click.echo(f"fastpe: interrupted after {len(written)} of {length} tokens", err=True)
            sys.exit(INTERRUPTED)
    rate = (len(written) - 1) / seconds if seconds else None
    if as_json:
        text = model.vocabulary.decode(written)
        facts = {"run": str(run), "prompt": prompt, "text": text, "tokens": written, "seed": seed}
        print_json({**facts, "cached": generation.cached, "tokens_per_second": rate})
        return
    _end(as_json, decoder)
    how = "keys and values kept" if generation.cached else "all read anew for every token"
    pace = f", {rate:,.0f} tokens/s" if rate else ""
    click.echo(f"{len(written):,} tokens{pace}, {how}", err=True)


def _tell(text: str) -> None:
    """Print a piece at once, as far as the output can encode it; a terminal gets control characters spelled out."""
    if sys.stdout.isatty():
        text = text.translate(_SPELLED)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _end(as_json: bool, decoder: codecs.IncrementalDecoder) -> None:
    if not as_json:
        _tell(decoder.decode(b"", final=True) + "\n")
