"""The small transformer: its parameters in one flat array, its forward pass, its loss and its gradients.

A model uses the *slots* that encodings fill (`fastpe.encodings.slots`), never an encoding directly. Some slots act at
the input, the others in the attention of every layer.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base import files, validation
from fastpe.model import dropout, model_file
from fastpe.model.config import ModelConfig
from fastpe.model.generation import Writing
from fastpe.model.parameters import Views, initialise, sum_in_order
from fastpe.text import subwords
from fastpe.text.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]

_LONGEST_TRIED = 2**16  # largest number of positions for which slots are filled when a model is built


@validation.named_arguments
@validation.named_methods
class Transformer(Writing):
    """A small transformer (Li 2025, section 7.1) with any encoding.

    It maps real numbers to real numbers or, with a vocabulary of V tokens, each token to V logits. The loss is the mean
    squared error or, with a vocabulary, the cross entropy.

    A layer computes ``z = z + Attention(z)`` and then ``z = z + FeedForward(z)``. `ModelConfig` can add norms and other
    parts. By default, initial weights and biases are uniform in ±1/sqrt(fan in of the matrix). They depend only on the
    seed and the name of the parameter, so models with different encodings start with equal weights. The initial token
    embedding is drawn from N(0, 0.02^2).

    Parameters
    ----------
    config : ModelConfig
        Sizes, encoding and seed.

    Attributes
    ----------
    config : ModelConfig
    dtype : dtype
    parameters : dict of str to array
        The parameters by name, as views into one flat array. Writing into them changes the model. If you assign an
        array, it is copied; an unknown name or another shape raises an error. Every matrix has the shape (in, out), as
        in ``y = x @ weight + bias``. ``torch.nn.Linear`` stores (out, in), so it needs ``torch.from_numpy(weight.T)``.

    Raises
    ------
    TypeError
        If `config` is not a `ModelConfig`.
    ValueError
        If the encoding does not support these sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpe import ModelConfig, Transformer
    >>> model = Transformer(ModelConfig("alibi", width=16, heads=2, hidden=32, train_length=8))
    >>> model(np.zeros((3, 8))).shape
    (3, 8)
    >>> language = Transformer(ModelConfig("alibi", width=16, causal=True, vocabulary=65, train_length=8))
    >>> language([[2, 0, 64]]).shape
    (1, 3, 65)
    """

    def __init__(self, config: ModelConfig) -> None:
        validation.instance("config", config, ModelConfig, "Transformer(ModelConfig('wavelet'))")
        super().__init__(config)
        self._parameters = Views("parameters", self._layout.views)
        initialise(config, self._layout.views, self._encoding.initial)
        # raise the encoding's errors about these sizes now; the length is limited, because a file may have any length
        self._encoding.slots(min(config.train_length, _LONGEST_TRIED), self._layout.views)

    parameters = property(lambda self: self._parameters, lambda self, values: self._assign(values))

    def _assign(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            self._parameters.assign(values)

    def __repr__(self) -> str:
        config, count = self.config, sum(parameter.size for parameter in self.parameters.values())
        heads = "1 head" if config.heads == 1 else f"{config.heads} heads"
        parts = "".join(f"\n {name} {getattr(config, name)}" for name in config.optional_parts)
        kind = "numbers" if config.vocabulary is None else f"{config.vocabulary:,} tokens"
        layers = "1 layer" if config.layers == 1 else f"{config.layers} layers"
        seen = "" if config.sight == "all" else f", sight {config.sight}"
        products = "" if config.precision == "float32" else f", products in {config.precision}"
        return (
            f"<Transformer: {config.encoding}, {'causal' if config.causal else 'bidirectional'}{seen}, of {kind}\n"
            f" {layers}, width {config.width}, {heads}, hidden {config.hidden}, "
            f"{config.activation}, norm {config.norm}{parts}\n"
            f" {count:,} parameters in {self.dtype}{products}, train_length {config.train_length}, seed {config.seed}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _restored, (self.config, self._layout.flat.copy(), self._vocabulary)

    def copies(self) -> dict[str, Array]:
        """Return copies of all parameters, all from the same training step, even if another thread trains the model.

        Returns
        -------
        dict of str to array

        Examples
        --------
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> model.copies()["head.weight"] is model.parameters["head.weight"]
        False
        """
        with self._lock:
            return self._layout.views_of(self._layout.flat.copy())

    def dropout_factors(self, batch: int, length: int, draw: int = 0) -> dict[str, Array]:
        """Return the factors by which dropout multiplies activations in `loss_and_grads`: 0 or 1 / (1 - dropout).

        Parameters
        ----------
        batch, length : int
            Number of sequences B, and number of positions N.
        draw : int
            Number of the training step, from 0.

        Returns
        -------
        dict of str to float64 array
            - ``embed`` (B, N, C): for the embedded input;
            - ``layers.{l}.attention`` and ``layers.{l}.feedforward`` (B, N, C): for the outputs of attention and
              feed-forward in layer l;
            - ``layers.{l}.attention.weights`` (B, H, N, N): for the attention weights of layer l.

        Examples
        --------
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, layers=1, train_length=4, dropout=0.5))
        >>> factors = model.dropout_factors(2, 4)
        >>> sorted(factors)
        ['embed', 'layers.0.attention', 'layers.0.attention.weights', 'layers.0.feedforward']
        >>> np.unique(factors["embed"]).tolist()
        [0.0, 2.0]
        """
        batch, length = validation.whole("batch", batch, 1), validation.whole("length", length, 1)
        return dropout.factors(self.config, batch, length, draw)

    def save(self, path: Any) -> None:
        """Write the parameters to a safetensors file whose header holds the configuration; `fastpe.load` reads it.

        Parameters
        ----------
        path : str or pathlib.Path
            The file. An existing file or symbolic link is replaced once the new file is complete. The tokenizer of a
            model of subwords is written to the same folder, as tokenizer.json.

        Raises
        ------
        OSError
            If the file cannot be written; an existing file is then unchanged.
        ValueError
            If the folder has the tokenizer.json of another model.

        Examples
        --------
        >>> import tempfile, pathlib, fastpe
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder, "model.safetensors"))
        ...     fastpe.load(pathlib.Path(folder, "model.safetensors")).config == model.config
        True
        """
        path = validation.path("path", path)
        if self.vocabulary is not None and self.vocabulary.content:
            files.check_place(path)
            subwords.keep(path.parent, self.vocabulary.content)
        model_file.write(path, self.config, self.copies(), self.vocabulary)

    def loss(
        self, x: Any, y: Any, *, weights: Any = None, lengths: Any = None, threads: int | None = None, draw: int = 0
    ) -> float:
        """Return the loss over a batch, computed without dropout.

        If the model has neither dropout nor random positions, this is the loss that `loss_and_grads` returns, up to
        rounding.

        Parameters
        ----------
        x, y, weights, lengths, threads
            As for `loss_and_grads`.
        draw : int
            If the model has random positions, this number selects them, as `draw` does in a call of the model.

        Returns
        -------
        float

        Examples
        --------
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> x = np.ones((2, 4))
        >>> abs(model.loss(x, x) / model.loss_and_grads(x, x)[0] - 1) < 1e-6
        True
        """
        with self._lock:
            return self._loss(x, y, weights, lengths, threads, draw)

    def loss_and_grads(
        self, x: Any, y: Any, *, weights: Any = None, lengths: Any = None, threads: int | None = None, draw: int = 0
    ) -> tuple[float, dict[str, Array]]:
        """Return the loss over a batch, and its gradient with respect to every parameter.

        The loss is a mean over all targets. For a model of numbers it is the mean squared error, and for a model with
        a vocabulary the mean cross entropy in nats. With `weights`, it is the weighted mean: each error is multiplied
        by its weight, and the sum is divided by the sum of the weights.

        Parameters
        ----------
        x, y : array_like (B, N) or (N,)
            Inputs and targets: finite numbers or, with a vocabulary of V tokens, integers in [0, V).
        weights : array_like of y's shape, optional
            Weight of each target in the mean: finite numbers of at least 0, not all 0, or booleans. A target with
            weight 0 may be anything, such as -100 or NaN. The inputs x must be valid everywhere.
        lengths : array_like (B,) of int, optional
            Lengths of the sequences, at most N. Positions beyond the end of a sequence are not part of the loss, and no
            time is spent on them. The position encoding is the one for N positions.
        threads : int, optional
            Largest number of threads. Results do not depend on it.
        draw : int
            Number of the training step, from 0. It selects the random positions and the `dropout_factors`.

        Returns
        -------
        loss : float
        gradients : dict of str to array
            By parameter name, in the model's dtype.

        Raises
        ------
        TypeError, ValueError
            If x, y or weights has invalid values, or if their shapes differ.

        Examples
        --------
        If the logits of all V tokens are equal, the loss is ln V. Here the target of each token is the next token:

        >>> model = Transformer(ModelConfig("sinusoidal", width=16, causal=True, vocabulary=65, train_length=8))
        >>> model.parameters["head.weight"][...] = model.parameters["head.bias"][...] = 0
        >>> text = np.arange(9) % 65
        >>> loss, gradients = model.loss_and_grads(text[:-1], text[1:])
        >>> round(loss, 4), gradients["embed.weight"].shape
        (4.1744, (65, 16))

        Targets with weight 0 are ignored:

        >>> y = np.where(text[1:] < 4, text[1:], -100)
        >>> round(model.loss(text[:-1], y, weights=y != -100), 4)
        4.1744
        """
        with self._lock:
            loss, gradients = self._gradients(x, y, weights, lengths, threads, draw)
            return loss, self._layout.views_of(sum_in_order(gradients))


def _restored(config: ModelConfig, flat: Array, vocabulary: Vocabulary | None) -> Transformer:
    """Return a copy of a model, for `copy` and for worker processes."""
    model = Transformer(config)
    model.vocabulary = vocabulary
    model._layout.flat[...] = flat
    return model
