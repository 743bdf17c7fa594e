"""SmolLM2-135M beyond its context of 8,192 tokens, with other rotary positions.

    python bench/smollm2.py MODEL TEXT FOLDER [--blocks 4] [--length 16384] [--only check|losses|report|prefill]

MODEL is a folder with the checkpoint, TEXT a long text. The script has three parts:

- check: compares the logits and greedy tokens of `fastpe.load_hf` with those of transformers, and prints the largest
  head scores.
- losses: the model runs in PyTorch, and `fastpe.torch.rotated` exchanges its positions. FOLDER gets the losses of all
  tokens, one file for each scheme and block of the text. If the script is interrupted, the same command continues it.
- report: prints a table of the losses in FOLDER, and draws FOLDER/losses.png. A scheme is compared in the blocks that
  are there.

A fourth, prefill, runs only if it is asked for: it measures how long fastpe and transformers with PyTorch's fused
attention take to read a prompt and to write one token. No other program may run then.
"""

import argparse
import contextlib
import io
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import stats
from torch.nn import functional
from transformers import AutoModelForCausalLM

import fastpe
import fastpe.torch
from fastpe.base import files

CONTEXT = 8192
PAIRS = 32  # of rotated channels in a head
ROWS = 1024  # whose logits are computed at a time
ITSELF = "the model itself"
WEIGHTS = ("previous", "duplicate", "induction", "sink")  # scores that are sums of attention weights
EDGES = (0, 2048, 4096, 8192, 10240, 12288, 16384)

Array = np.ndarray[Any, Any]


def schemes() -> dict[str, dict[str, Any]]:
    """The arguments of `fastpe.torch.rotated` by the name of the scheme; none for the model itself."""
    full_turns = np.arange(PAIRS) < math.floor(PAIRS * math.log(CONTEXT / math.tau) / math.log(1e5)) + 1
    return {
        ITSELF: {},
        "Self-Extend, group 4, window 1,024": {"scheme": "self_extend", "group": 4, "window": 1024},
        "YaRN, factor 2": {"scheme": "rope_yarn", "factor": 2.0},
        "NTK, factor 2": {"scheme": "rope_ntk", "factor": 2.0},
        "linear, factor 2": {"scheme": "rope_linear", "factor": 2.0},
        "dual chunk, chunk 6,144": {"scheme": "dual_chunk", "chunk": 6144},
        "ReRoPE, window 4,096": {"scheme": "rerope", "window": 4096},
        "LM-Infinite, window 4,096": {"scheme": "lm_infinite", "window": 4096},
        "StreamingLLM, 4 + 4,092": {"scheme": "streaming", "start": 4, "recent": 4092},
        "clipped: no rotation of pairs without a full turn": {"keep": full_turns.astype(float)},
        "dropped: no rotation at all": {"keep": 0.0},
    }


def losses(model: Any, tokens: torch.Tensor) -> Array:
    """The loss of each token but the first; logits are computed for some rows at a time."""
    with torch.inference_mode():
        hidden, found = model.model(tokens[None, :-1], use_cache=False).last_hidden_state[0], []
        for rows, targets in zip(hidden.split(ROWS), tokens[1:].split(ROWS), strict=True):
            found.append(functional.cross_entropy(model.lm_head(rows), targets, reduction="none"))
    return torch.cat(found).numpy()


def place(folder: Path, block: int, name: str, length: int) -> Path:
    """The file of the losses of a scheme."""
    return folder / f"{block}-{''.join(c if c.isalnum() else '_' for c in name)}-{length}.npy"


def measure(model: Any, blocks: torch.Tensor, folder: Path) -> None:
    """Write the losses of all schemes that are not there yet."""
    for number, block in enumerate(blocks):
        for name, arguments in schemes().items():
            path = place(folder, number, name, len(block) - 1)
            if not path.exists():
                begin = time.perf_counter()
                with fastpe.torch.rotated(model, **arguments) if arguments else contextlib.nullcontext():
                    own = losses(model, block)
                print(f"block {number}, {name}: {own.mean():.4f}, {time.perf_counter() - begin:.0f} s", flush=True)
                files.write_file(path, _as_npy(own))  # whole, or not at all


def measured(folder: Path, blocks: int, length: int) -> dict[str, dict[int, Array]]:
    """The losses (length,) by scheme and block, as far as they are there."""
    found = {}
    for name in schemes():
        paths = {block: place(folder, block, name, length) for block in range(blocks)}
        found[name] = {block: np.load(path, allow_pickle=False) for block, path in paths.items() if path.exists()}
    return {name: own for name, own in found.items() if own}


def _as_npy(values: Array) -> bytes:
    content = io.BytesIO()
    np.save(content, values, allow_pickle=False)
    return content.getvalue()


def interval(values: Array) -> tuple[float, float]:
    """The mean and half the width of its 95 % t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(half)


def table(found: dict[str, dict[int, Array]], length: int) -> Iterator[str]:
    """Losses by position, and their differences from the model itself, with intervals over blocks."""
    edges = [edge for edge in EDGES if edge < length] + [length]
    bins = list(itertools.pairwise(edges))
    yield f"| scheme | blocks | {' | '.join(f'{first + 1:,} to {end:,}' for first, end in bins)} |"
    yield "|---" * (len(bins) + 2) + "|"
    for name, own in found.items():
        shown = "{:.3f}" if name == ITSELF else "{:+.3f}"
        rows = np.stack([row - (0 if name == ITSELF else found[ITSELF][block]) for block, row in own.items()])
        pairs = [interval(rows[:, first:end].mean(1)) for first, end in bins]
        cells = [shown.format(mean) + (f" ± {half:.3f}" if len(own) > 1 else "") for mean, half in pairs]
        yield f"| {name} | {len(own)} | {' | '.join(cells)} |"


def draw(found: dict[str, dict[int, Array]], length: int, path: Path) -> None:
    """Draw the loss by position, as means over blocks of text and over a 32nd of the positions."""
    figure, panel = plt.subplots(figsize=(9, 4.5), layout="constrained")
    step = max(1, length // 32)
    for name, own in found.items():
        mean = np.mean([*own.values()], axis=0)[: length // step * step].reshape(-1, step).mean(1)
        look = {} if schemes()[name] else {"color": "black", "linewidth": 2.5}
        panel.plot((np.arange(len(mean)) + 0.5) * step, mean, label=name, **look)
    if length > CONTEXT:
        panel.axvline(CONTEXT, color="0.5", linestyle=":", label="context in training")
    panel.set(xlabel="position", ylabel="loss, nats per token", xlim=(0, length))
    figure.legend(fontsize=8, loc="outside right upper")
    figure.savefig(path, dpi=110)


def check(model: Any, folder: str, tokens: torch.Tensor) -> None:
    """Compare fastpe's own model of the checkpoint with that of transformers, and print the largest head scores."""
    ours = fastpe.load_hf(folder)
    x = tokens[:512].numpy()
    with torch.inference_mode():
        theirs = model(tokens[None, :512]).logits[0].numpy()
        greedy = model.generate(tokens[None, :40], max_new_tokens=60, min_new_tokens=60, do_sample=False)[0, 40:]
    print(f"logits differ by {abs(ours(x) - theirs).max() / abs(theirs).max():.1e} of the largest")
    written = ours.generate(x[:40], 60, temperature=0.0)
    print(f"greedy tokens: {sum(int(a) == int(b) for a, b in zip(written, greedy, strict=True))} of 60 are equal")
    generator = torch.Generator().manual_seed(0)
    twice = torch.randint(1000, 40000, (1, 100), generator=generator).repeat(1, 2)
    for name, scores in fastpe.torch.head_scores(model, twice, start=100).items():
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        many = f"; above 0.5 in {(scores > 0.5).sum()} of {scores.numel()} heads" if name in WEIGHTS else ""
        print(f"{name}: largest in layer {layer}, head {head}: {scores.max():.2f}; mean {scores.mean():.2f}{many}")


def prefill(
    model: Any, folder: str, tokens: torch.Tensor, lengths: Sequence[int] = (2048, 8192), rounds: int = 5
) -> None:
    """Print the median times to read a prompt and to write one token, measured in turns."""
    ours = fastpe.load_hf(folder)
    reads = {
        "fastpe": lambda prompt: ours.generate(prompt[0].numpy(), 1, temperature=0.0),
        "transformers": lambda prompt: model.generate(prompt, max_new_tokens=1, do_sample=False),
    }
    for length in lengths:
        prompt, times = tokens[None, :length], {name: list[float]() for name in reads}
        for _ in range(rounds + 1):
            for name, read in reads.items():
                begin = time.perf_counter()
                with torch.inference_mode():
                    read(prompt)
                times[name].append(time.perf_counter() - begin)
        own, theirs = (float(np.median(each[1:])) for each in times.values())  # the first round compiles
        print(f"{length} tokens: fastpe {own:.2f} s, transformers {theirs:.2f} s, ratio {theirs / own:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--length", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["check", "losses", "report", "prefill"])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    parts = ["check", "losses", "report"] if arguments.only is None else [arguments.only]
    if parts != ["report"]:
        run(arguments, parts)
    if "report" in parts:
        found = measured(arguments.folder, arguments.blocks, arguments.length)
        print(*table(found, arguments.length), sep="\n")
        draw(found, arguments.length, arguments.folder / "losses.png")


def run(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Run the parts that need the model and the text."""
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, attn_implementation="sdpa").eval()
    vocabulary = fastpe.load_hf(arguments.model).vocabulary
    assert vocabulary is not None
    tokens = torch.from_numpy(np.asarray(vocabulary.encode(arguments.text.read_text()), np.int64))
    if "check" in parts:
        check(model, arguments.model, tokens)
    if "prefill" in parts:
        prefill(model, arguments.model, tokens)
    if "losses" in parts:
        pieces = tokens[1:].unfold(0, arguments.length, arguments.length)  # the targets of each block; none overlap
        order = np.random.default_rng(0).permutation(len(pieces))[: arguments.blocks]  # more blocks keep the first ones
        blocks = torch.stack([tokens[i * arguments.length : (i + 1) * arguments.length + 1] for i in order])
        measure(model, blocks, arguments.folder)


if __name__ == "__main__":
    main()
