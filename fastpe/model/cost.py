"""The cost of a training step: useful FLOPs of its matrix products, forward and backward.

FLOPs are counted for every matrix product of the model's definition. A training step computes fewer of them if the
model is causal, or if the embedding or the head is fused with a layer (`kernels.model.fused_embedding_and_head`).
"""

from fastpe.model import sight
from fastpe.model.config import GATED, ModelConfig
from fastpe.model.parameters import projected_widths


def step_flop(config: ModelConfig, batch: int, *, unmasked: bool = False) -> int:
    """Return the useful FLOPs of one training step.

    Parameters
    ----------
    config : ModelConfig
    batch : int
        Number of sequences of `train_length`.
    unmasked : bool
        Count only scores that are not masked: in a causal model without windows, `N * (N + 1) / 2` instead of `N * N`.

    Examples
    --------
    >>> step_flop(ModelConfig("wavelet"), 32) / 1e6
    753.0496
    """
    return batch * sequence_flop(config, config.train_length, unmasked=unmasked)


def sequence_flop(config: ModelConfig, n: int, targets: int | None = None, *, unmasked: bool = False) -> int:
    """Return the useful FLOPs of one sequence of n positions in a step.

    targets: number of tokens that contribute to the loss, by default all. Only their logits are counted.

    Examples
    --------
    >>> sequence_flop(ModelConfig("nope", vocabulary=8192, train_length=64), 64, targets=4) / 1e6
    44.040192
    """
    c, f, queries, keys = config.width, config.hidden, *projected_widths(config)[:2]
    seen = sight.of_layers(config.sight, config.layers) if unmasked else ()
    pairs = sum(sight.visible_pairs(one, n, causal=config.causal) for one in seen) or config.layers * n * n
    maps = 3 if config.activation in GATED else 2
    layers = 2 * n * config.layers * (2 * c * (queries + keys) + maps * c * f) + 4 * pairs * queries
    if not config.vocabulary:  # the embedding of a number has no gradient with respect to its input
        return 3 * layers + 4 * n * c + 6 * n * c
    rows = n if targets is None else targets
    return 3 * layers + 6 * rows * c * config.vocabulary  # the embedding of a token is not a product
