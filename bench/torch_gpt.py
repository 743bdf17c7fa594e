"""A small GPT in PyTorch eager, written in the usual way: the peer of `fastpe train --task text` and `fastpe generate`.

    python bench/torch_gpt.py TEXT [--preset nanogpt-cpu|nanochat-cpu] [--threads 2] [--rounds 3]

First, losses and generated text are compared; then the libraries alternate. With nanoGPT's recipe, the script times
whole runs (training and validation), and generation with cached keys and values. With nanochat's, whose runs take about
a day, it times updates of 4 sequences.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import fastpe
from fastpe.training.data import training_data
from fastpe.training.loop import optimiser, step
from fastpe.training.presets import preset
from fastpe.training.schedule import rate
from fastpe.training.text_data import text_parts


class Block(nn.Module):
    """Attention and feed-forward block with norms first. Keys and values are cached if a cache is given."""

    def __init__(self, config: fastpe.ModelConfig) -> None:
        super().__init__()
        width, hidden, eps = config.width, config.hidden, config.norm_eps
        self.heads, self.scale, self.squared = config.heads, config.score_scale, config.activation == "relu2"
        rms = config.norm == "rmsnorm"
        self.norm1, self.norm2 = (
            nn.RMSNorm(width, eps) if rms else nn.LayerNorm(width, eps, bias=False) for _ in range(2)
        )
        self.query_norm, self.key_norm = (
            nn.RMSNorm(width // config.heads, eps) if config.qk_norm == "head" else nn.Identity() for _ in range(2)
        )
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, z: torch.Tensor, angles: Any, kept: Any = None, before: int = 0) -> torch.Tensor:
        batch, n, width = z.shape
        q, k, v = (
            part.view(batch, n, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(z)).split(width, 2)
        )
        q, k = self.query_norm(q), self.key_norm(k)
        if angles is not None:
            cos, sin = angles[before : before + n].cos(), angles[before : before + n].sin()
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if kept is not None:
            kept[0][:, :, before : before + n], kept[1][:, :, before : before + n] = k, v
            k, v = kept[0][:, :, : before + n], kept[1][:, :, : before + n]
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=n > 1, scale=self.scale)
        z = z + self.out(mixed.transpose(1, 2).reshape(batch, n, width))
        wide = self.wide(self.norm2(z))
        return z + self.narrow(functional.relu(wide).square() if self.squared else functional.gelu(wide))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate channels c and c + D/2 as pairs."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Gpt(nn.Module):
    """The models of the presets `nanogpt-cpu` with learned positions, and `nanochat-cpu` with rope in halves."""

    def __init__(self, config: fastpe.ModelConfig, positions: int) -> None:
        super().__init__()
        width = config.width
        self.tokens = nn.Embedding(config.vocabulary or 2, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(width, config.norm_eps) if config.norm == "rmsnorm" else nn.LayerNorm(width, bias=False)
        self.head = None if config.tied else nn.Linear(width, self.tokens.num_embeddings, bias=False)
        self.softcap = config.logit_softcap
        self.positions = nn.Embedding(positions, width) if config.encoding == "learned" else None
        if self.positions is None:
            channels = torch.arange(0, width // config.heads, 2, dtype=torch.float64) * config.heads / width
            frequencies = config.options.get("base", 1e4) ** -channels
            self.register_buffer("angles", torch.arange(positions)[:, None] * frequencies, persistent=False)
        else:
            self.angles = None

    def forward(self, x: torch.Tensor, kept: Any = None, before: int = 0) -> torch.Tensor:
        z = self.tokens(x)
        if self.positions is not None:
            z = z + self.positions.weight[before : before + x.shape[1]]
        for number, block in enumerate(self.blocks):
            z = block(z, self.angles, None if kept is None else kept[number], before)
        z = self.norm(z if kept is None else z[:, -1:])
        logits = functional.linear(z, self.tokens.weight if self.head is None else self.head.weight)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def load(self, model: fastpe.Transformer, positions: int) -> "Gpt":
        """Load the weights of a fastpe model; `positions` is the number of rows of its table."""
        own = {name: torch.from_numpy(np.array(value)) for name, value in model.parameters.items()}
        found = {"tokens.weight": own["embed.weight"], "norm.weight": own["final_norm.weight"]}
        if self.positions is not None:
            found["positions.weight"] = torch.from_numpy(np.array(model.slots(positions)["table"]))
        if self.head is not None:
            found["head.weight"] = own["head.weight"].T
        for layer in range(len(self.blocks)):
            theirs, ours = f"blocks.{layer}", f"layers.{layer}"
            maps = [own[f"{ours}.attention.{part}.weight"] for part in ("query", "key", "value")]
            found[f"{theirs}.qkv.weight"] = torch.cat(maps, 1).T
            found[f"{theirs}.out.weight"] = own[f"{ours}.attention.out.weight"].T
            found[f"{theirs}.wide.weight"] = own[f"{ours}.feedforward.in.weight"].T
            found[f"{theirs}.narrow.weight"] = own[f"{ours}.feedforward.out.weight"].T
            for part in ("query", "key"):
                if (weight := own.get(f"{ours}.attention.{part}_norm.weight")) is not None:
                    found[f"{theirs}.{part}_norm.weight"] = weight
            for norm in ("norm1", "norm2"):
                found[f"{theirs}.{norm}.weight"] = own[f"{ours}.{norm}.weight"]
        self.to(own["embed.weight"].dtype).load_state_dict(found)
        return self


def trainer(config: fastpe.TrainConfig, gpt: Gpt) -> Callable[[Any], float]:
    """A function that makes a training step of the recipe: learning rate, AdamW in two groups, clipping."""
    groups = [
        {"params": [p for p in gpt.parameters() if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in gpt.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)
    done = 0

    def step_of(batch: Any) -> float:
        nonlocal done
        for group in adam.param_groups:
            group["lr"] = rate(config, done)
        x, y = (torch.from_numpy(array).long() for array in batch[:2])
        loss = functional.cross_entropy(gpt(x).flatten(0, 1), y.flatten())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), config.clip or float("inf"))
        adam.step()
        done += 1
        return loss.item()

    return step_of


def made(config: fastpe.TrainConfig) -> Gpt:
    """The peer of a run's model, with its initial weights."""
    model = fastpe.Transformer(config.model)
    return Gpt(config.model, config.train_length).load(model, config.train_length)


def validate(gpt: Gpt, tokens: Any, length: int) -> float:
    """The mean loss over a whole text, in blocks of one length, 64 at a time."""
    total, count = 0.0, len(tokens) - 1
    blocks, rest = divmod(count, length)
    with torch.no_grad():
        for places in (torch.arange(blocks * length).view(-1, length), torch.arange(count - rest, count)[None]):
            for rows in places.split(64) if places.numel() else ():
                x, y = (torch.from_numpy(tokens[some].astype(np.int64)) for some in (rows, rows + 1))
                total += functional.cross_entropy(gpt(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    return total / count


def whole_run(config: fastpe.TrainConfig) -> float:
    """Train and validate like `fastpe.train`; return the loss over the whole validation part."""
    gpt, data = made(config), training_data(config)
    update, tokens = trainer(config, gpt), text_parts(config)[1]
    length = config.train_length
    starts = np.linspace(0, len(tokens) - 1 - length, config.validation).astype(np.int64)
    places = starts[:, None] + np.arange(length + 1)
    for epoch in range(1, config.epochs + 1):
        for batch in data.batches(epoch):
            update(batch)
        with torch.no_grad():
            blocks = torch.from_numpy(tokens[places].astype(np.int64))
            functional.cross_entropy(gpt(blocks[:, :-1]).flatten(0, 1), blocks[:, 1:].flatten()).item()
    return validate(gpt, tokens, length)


@torch.no_grad()
def write(gpt: Gpt, prompt: Any, length: int) -> list[int]:
    """Generate the most likely tokens, with cached keys and values."""
    block = gpt.blocks[0]
    width = gpt.tokens.embedding_dim // block.heads
    shape = (1, block.heads, len(prompt) + length, width)
    kept = [[torch.empty(shape, dtype=gpt.tokens.weight.dtype) for _ in range(2)] for _ in gpt.blocks]
    written, x, before = [], torch.as_tensor(prompt)[None], 0
    for _ in range(length):
        token = int(gpt(x, kept, before)[0, -1].argmax())
        before += x.shape[1]
        written.append(token)
        x = torch.tensor([[token]])
    return written


def compare_steps(config: fastpe.TrainConfig, updates: int, peer: fastpe.TrainConfig | None = None) -> float:
    """The largest relative difference between fastpe's losses and the peer's, over a number of updates.

    peer: other settings for the peer; by default it has the same."""
    model = fastpe.Transformer(config.model)
    adam, update, worst = optimiser(config, model), trainer(peer or config, made(config)), 0.0
    batches = training_data(config).batches(1)
    for number in range(updates):
        batch = next(batches)
        adam.lr = rate(config, number)
        ours = step(adam, batch, None)
        worst = max(worst, abs(update(batch) / ours - 1.0))
    return worst


OPTIONS = {"nanogpt-cpu": ("learned", {}), "nanochat-cpu": ("rope", {"base": 1e5, "pairs": "half"})}
"""The encoding of each preset's model here, and its options."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--preset", choices=tuple(OPTIONS), default="nanogpt-cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    own = {"batch": 4} if arguments.preset == "nanochat-cpu" else {}
    encoding, options = OPTIONS[arguments.preset]
    config = preset(arguments.preset, encoding, options, task="text", data=arguments.text, test_lengths=(), **own)
    print(
        f"losses of 50 updates in float64 differ by {compare_steps(replace(config, dtype='float64'), 50):.1e} at most"
    )
    if arguments.preset == "nanochat-cpu":
        time_updates(config, arguments.threads, arguments.rounds)
    else:
        compare_writing(config, arguments.threads)
        time_runs(config, arguments.threads, arguments.rounds)


def time_runs(config: fastpe.TrainConfig, threads: int, rounds: int) -> None:
    """Whole runs, one after the other."""
    for number in range(rounds):
        begin = time.perf_counter()
        ours = fastpe.train(config, threads=threads, progress=False).result["validation"]["loss"]
        middle = time.perf_counter()
        theirs = whole_run(config)
        own, other = middle - begin, time.perf_counter() - middle
        told = f"fastpe {own:.1f} s (loss {ours:.4f}), PyTorch {other:.1f} s ({theirs:.4f})"
        print(f"run {number}: {told}: {other / own:.2f}")


def time_updates(config: fastpe.TrainConfig, threads: int, rounds: int) -> None:
    """Updates of both libraries by turns; the best of a number of rounds."""
    model = fastpe.Transformer(config.model)
    adam, update = optimiser(config, model), trainer(config, made(config))
    batch = next(training_data(config).batches(1))
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):  # the first one compiles
        for number, way in enumerate((lambda: step(adam, batch, threads), lambda: update(batch))):
            begin = time.perf_counter()
            way()
            best[number] = min(best[number], time.perf_counter() - begin)
    ours, theirs = best
    print(f"an update of {batch[0].size} tokens: fastpe {ours:.3f} s, PyTorch {theirs:.3f} s: {theirs / ours:.2f}")


def compare_writing(config: fastpe.TrainConfig, threads: int) -> None:
    """Tokens per second from 16 to 1,024 tokens, the best of many alternating turns."""
    model = fastpe.Transformer(replace(config, train_length=1024).model)
    gpt = Gpt(model.config, 1024).load(model, 1024)
    prompt = text_parts(config)[1][:16].astype(np.int64)
    ways: dict[str, Callable[[], Any]] = {
        "fastpe": lambda: model.generate(prompt, 1008, temperature=0.0).tolist(),
        "PyTorch": lambda: write(gpt, prompt, 1008),
        "fastpe without a cache": lambda: model.generate(
            prompt, 1008, temperature=0.0, cache=False, threads=threads
        ).tolist(),
    }
    texts, best = {}, dict.fromkeys(ways, float("inf"))
    for number in range(6):
        for name, way in ways.items():
            if number < 2 or not name.endswith("cache"):
                begin = time.perf_counter()
                texts[name] = way()
                best[name] = min(best[name], time.perf_counter() - begin)
    same = {name: sum(a == b for a, b in zip(texts[name], texts["fastpe"], strict=True)) for name in ways}
    for name, seconds in best.items():
        print(f"writing 1,008 tokens after 16: {name} {1008 / seconds:,.0f} tokens/s, {same[name]} as fastpe's")


if __name__ == "__main__":
    main()
