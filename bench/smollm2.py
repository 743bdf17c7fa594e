"""SmolLM2-135M beyond its context of 8,192 tokens, with other rotary positions.

    python bench/smollm2.py MODEL TEXT FOLDER [--blocks 4] [--length 16384]

MODEL is a folder with the checkpoint, TEXT a long text. The model runs in PyTorch; `fastpe.torch.rotated` exchanges its
positions. FOLDER gets the losses of all tokens, one file for each scheme and block of the text. If the script is
interrupted, the same command continues it. At the end, it prints a table, and draws FOLDER/losses.png.

First, the script compares the logits and greedy tokens of `fastpe.load_hf` with those of transformers, and prints the
largest head scores.
"""

import argparse
import contextlib
import io
import itertools
import math
import time
from collections.abc import Iterator
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
EDGES = (0, 2048, 4096, 8192, 10240, 12288, 16384)

Array = np.ndarray[Any, Any]


def schemes() -> dict[str, dict[str, Any]]:
    """The arguments of `fastpe.torch.rotated` by the name of the scheme; none for the model itself."""
    full_turns = np.arange(PAIRS) < math.floor(PAIRS * math.log(CONTEXT / math.tau) / math.log(1e5)) + 1
    return {
        "the model itself": {},
        "linear, factor 2": {"scheme": "rope_linear", "factor": 2.0},
        "NTK, factor 2": {"scheme": "rope_ntk", "factor": 2.0},
        "YaRN, factor 2": {"scheme": "rope_yarn", "factor": 2.0},
        "Self-Extend, group 4, window 1,024": {"scheme": "self_extend", "group": 4, "window": 1024},
        "ReRoPE, window 4,096": {"scheme": "rerope", "window": 4096},
        "dual chunk, chunk 6,144": {"scheme": "dual_chunk", "chunk": 6144},
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


def measured(model: Any, blocks: torch.Tensor, folder: Path) -> dict[str, Array]:
    """The losses by scheme, (blocks, length)."""
    found: dict[str, list[Array]] = {name: [] for name in schemes()}
    for number, block in enumerate(blocks):
        for name, arguments in schemes().items():
            path = folder / f"{number}-{''.join(c if c.isalnum() else '_' for c in name)}-{len(block) - 1}.npy"
            if not path.exists():
                begin = time.perf_counter()
                with fastpe.torch.rotated(model, **arguments) if arguments else contextlib.nullcontext():
                    own = losses(model, block)
                print(f"block {number}, {name}: {own.mean():.4f}, {time.perf_counter() - begin:.0f} s", flush=True)
                files.write_file(path, _as_npy(own))  # whole, or not at all
            found[name].append(np.load(path, allow_pickle=False))
    return {name: np.stack(rows) for name, rows in found.items()}


def _as_npy(values: Array) -> bytes:
    content = io.BytesIO()
    np.save(content, values, allow_pickle=False)
    return content.getvalue()


def interval(values: Array) -> tuple[float, float]:
    """The mean and half the width of its 95 % t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(half)


def table(found: dict[str, Array]) -> Iterator[str]:
    """Losses by position, and their differences from the model itself, with intervals over blocks."""
    length = next(iter(found.values())).shape[1]
    edges = [edge for edge in EDGES if edge < length] + [length]
    bins = list(itertools.pairwise(edges))
    yield f"| scheme | {' | '.join(f'{first + 1:,} to {end:,}' for first, end in bins)} |"
    yield "|---" * (len(bins) + 1) + "|"
    plain = found["the model itself"]
    for name, rows in found.items():
        cells = []
        for first, end in bins:
            mean, half = interval((rows if rows is plain else rows - plain)[:, first:end].mean(1))
            cells.append(f"{mean:.3f} ± {half:.3f}" if rows is plain else f"{mean:+.3f} ± {half:.3f}")
        yield f"| {name} | {' | '.join(cells)} |"


def draw(found: dict[str, Array], path: Path, step: int = 512) -> None:
    """Draw the loss by position, as means over blocks of text and over `step` positions."""
    figure, panel = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, rows in found.items():
        mean = rows[:, : rows.shape[1] // step * step].mean(0).reshape(-1, step).mean(1)
        color = None if schemes()[name] else "black"
        panel.plot((np.arange(len(mean)) + 0.5) * step, mean, label=name, color=color)
    panel.axvline(CONTEXT, color="0.5", linestyle=":")
    panel.set(xlabel="position", ylabel="loss, nats per token", ylim=(2.5, 7))
    panel.legend(fontsize=7)
    figure.savefig(path, dpi=150)


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
        print(f"{name}: largest in layer {layer}, head {head}: {scores.max():.2f}; mean {scores.mean():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--length", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, attn_implementation="sdpa").eval()
    vocabulary = fastpe.load_hf(arguments.model).vocabulary
    assert vocabulary is not None
    tokens = torch.from_numpy(np.asarray(vocabulary.encode(arguments.text.read_text()), np.int64))
    starts = np.linspace(0, len(tokens) - arguments.length - 1, arguments.blocks).astype(int)
    check(model, arguments.model, tokens)
    blocks = torch.stack([tokens[start : start + arguments.length + 1] for start in starts])
    found = measured(model, blocks, arguments.folder)
    print(*table(found), sep="\n")
    draw(found, arguments.folder / "losses.png")


if __name__ == "__main__":
    main()
