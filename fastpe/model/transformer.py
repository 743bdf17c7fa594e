"""The small transformer: its parameters in one flat array, its forward pass, its loss and its gradients.

A model knows the *slots* that encodings fill (`fastpe.encodings.slots`), never an encoding: some act at the
input, the others in the attention of every layer.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.guard import OneAtATime
from fastpe.kernels import model_batch
from fastpe.kernels.threads import run_lanes, threads_for
from fastpe.model.checked_inputs import CheckedInputs
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.parameters import Parameters, Transposes, Views, initialise, sum_in_order
from fastpe.model.scratch import Scratch, Update

Array = np.ndarray[Any, Any]

_GROUPS_BYTES = 2**24  # at most, for the gradients of all groups, unless they are but four
_MOST_KEPT = 4  # a user who tries many lengths should not fill the memory


class Transformer:
    """A small transformer (Li 2025, section 7.1) with any encoding.

    It maps numbers to numbers, or, with a vocabulary of V tokens, tokens to V logits each; the loss is then the cross
    entropy instead of the mean squared error.

    A layer: ``z = z + Attention(z)``, ``z = z + FeedForward(z)``, with layer norms before both where asked for; see
    `ModelConfig` for the choices. Initial weights and biases are uniform in ±1/sqrt(fan in of the matrix) and depend on
    the seed and on the parameter's name alone, so that models with different encodings start alike. The table of tokens
    starts as N(0, 0.02^2).

    Parameters
    ----------
    config : ModelConfig
        Sizes, encoding and seed.

    Attributes
    ----------
    config : ModelConfig
    dtype : dtype
    parameters : dict of str to array
        Views into one flat array: writing into them changes the model, and so does assigning arrays of their shapes,
        which are copied; any other name or shape is an error. Every matrix is (in, out), ``y = x @ weight + bias``; a
        ``torch.nn.Linear`` keeps (out, in) and takes ``torch.from_numpy(weight.T)``.

    Raises
    ------
    TypeError
        If `config` is no `ModelConfig`.
    ValueError
        If the encoding cannot have these sizes.

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
        self._config, self._dtype = config, np.dtype(config.dtype)
        self._encoding = ModelEncoding(config)
        self._layout = Parameters(config, self._encoding.initial)
        self._transposes = Transposes(config, self._layout.offsets)
        self._kept: dict[tuple[int, int, bool], Scratch] = {}
        self._inputs = CheckedInputs(config.vocabulary, self.dtype)
        self._lock = OneAtATime()  # inputs, slots, scratch memory and gradients: one call at a time
        self._parameters = Views("parameters", self._layout.views)
        initialise(config, self._layout.views, self._encoding.initial)
        # whatever the encoding has against these sizes is said now
        self._encoding.slots(config.train_length, self._layout.views)

    # memory is laid out by these: they stay
    config = property(lambda self: self._config)
    dtype = property(lambda self: self._dtype)
    parameters = property(lambda self: self._parameters, lambda self, values: self._assign(values))

    def _assign(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            self._parameters.assign(values)

    def slots(self, length: int) -> dict[str, Any]:
        """What the encoding fills at this length, in positions, as copies.

        Slots of which every layer has its own have an axis of layers in front.
        """
        with self._lock:
            found = self._encoding.slots(length, self._layout.views)
            return {slot: x.copy() if isinstance(x, np.ndarray) else x for slot, x in found.items()}

    def __call__(self, x: Any, *, lengths: Any = None, threads: int | None = None, draw: int = 0) -> Array:
        """Outputs y of the model.

        Parameters
        ----------
        x : array_like (B, N) or (N,)
            Finite numbers; with a vocabulary of V tokens integers in [0, V).
        lengths : array_like (B,) of int, optional
            Lengths of the sequences, at most N. Past the end of one nothing is read, and outputs are 0; the encoding is
            that of N positions.
        threads : int, optional
            Threads at most; all that Numba may use by default. The bits do not depend on it.
        draw : int
            Where positions are random: which ones, of those that tests have.

        Returns
        -------
        array of x's shape, (B, N, V) or (N, V) with a vocabulary (logits), in the model's dtype

        Raises
        ------
        TypeError, ValueError
            If x is no array of such numbers, or tokens, of such a shape.
        fastpe.BeyondTrainingLength
            If the encoding is undefined at this length.
        """
        vocabulary = self.config.vocabulary
        with self._lock:
            given, checked = self._inputs.inputs(x, lengths)
            outputs = self._outputs(np.atleast_2d(given), checked, threads, draw)
        return outputs.reshape(given.shape if vocabulary is None else (*given.shape, vocabulary))

    def _outputs(self, rows: Array, lengths: Array, threads: int | None, draw: int) -> Array:
        batch, length = rows.shape
        slots, lanes = self._encoding.slots(length, self._layout.views, draw), min(threads_for(threads), batch)
        work = self._scratch(length, lanes, slots, backward=False)
        shape = (batch, length * (self.config.vocabulary or 1))
        size = math.prod(shape) * self.dtype.itemsize
        validation.room(f"outputs of {batch} sequences with length={length}", size, "need")
        y = np.empty(shape, self.dtype)
        run_lanes(
            lanes, model_batch.forward, rows, lengths, y, self._layout.flat, work.arenas, work.position(slots),
            work.sizes, work.offsets, work.arena,
        )  # fmt: skip
        return y

    def __repr__(self) -> str:
        config, count = self.config, sum(parameter.size for parameter in self.parameters.values())
        heads = "1 head" if config.heads == 1 else f"{config.heads} heads"
        kind = "numbers" if config.vocabulary is None else f"{config.vocabulary:,} tokens"
        layers = "1 layer" if config.layers == 1 else f"{config.layers} layers"
        return (
            f"<Transformer: {config.encoding}, {'causal' if config.causal else 'bidirectional'}, of {kind}\n"
            f" {layers}, width {config.width}, {heads}, hidden {config.hidden}, "
            f"{config.activation}, norm {config.norm}\n"
            f" {count:,} parameters in {self.dtype}, train_length {config.train_length}, seed {config.seed}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _restored, (self.config, self._layout.flat.copy())

    def copies(self) -> dict[str, Array]:
        """Copies of all parameters as they are at one moment: another thread may be training the model.

        Examples
        --------
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> model.copies()["head.weight"] is model.parameters["head.weight"]
        False
        """
        with self._lock:
            return self._layout.views_of(self._layout.flat.copy())

    def save(self, path: Any) -> None:
        """Write the parameters as a safetensors file, the configuration in its header; `fastpe.load` reads it.

        Parameters
        ----------
        path : str or pathlib.Path
            The file; what was there, a symbolic link too, is replaced once the new one is whole.

        Raises
        ------
        OSError
            If it cannot be written: what was there is as it was.

        Examples
        --------
        >>> import tempfile, pathlib, fastpe
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder, "model.safetensors"))
        ...     fastpe.load(pathlib.Path(folder, "model.safetensors")).config == model.config
        True
        """
        from fastpe.model import model_file

        model_file.write(validation.path("path", path), self)

    def loss(
        self, x: Any, y: Any, *, weights: Any = None, lengths: Any = None, threads: int | None = None, draw: int = 0
    ) -> float:
        """The loss over a batch, without gradients: that of `loss_and_grads` up to rounding.

        Parameters
        ----------
        x, y, weights, lengths, threads
            As for `loss_and_grads`.
        draw : int
            Where positions are random: which ones, of those that tests have, as for a call of the model.

        Returns
        -------
        float
            That of `loss_and_grads`.

        Examples
        --------
        >>> model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
        >>> x = np.ones((2, 4))
        >>> abs(model.loss(x, x) / model.loss_and_grads(x, x)[0] - 1) < 1e-6
        True
        """
        with self._lock:
            x, y, shares, lengths = self._inputs.batch(x, y, weights, lengths)
            batch, length = x.shape
            slots, groups = self._encoding.slots(length, self._layout.views, draw), self._groups(batch)
            lanes = min(threads_for(threads), groups)
            work, losses = self._scratch(length, lanes, slots, backward=False), np.zeros(groups)
            run_lanes(
                lanes, model_batch.losses, x, y, shares, lengths, losses, self._layout.flat, work.arenas,
                work.position(slots), work.sizes, work.offsets, work.arena,
            )  # fmt: skip
            return float(losses.sum())

    def loss_and_grads(
        self, x: Any, y: Any, *, weights: Any = None, lengths: Any = None, threads: int | None = None, draw: int = 0
    ) -> tuple[float, dict[str, Array]]:
        """Loss over a batch and its gradient by every parameter.

        The loss is the mean over all targets of the squared error, or, with a vocabulary, of the cross entropy in nats:
        minus the natural logarithm of the softmax of the logits at the target token. With weights it is the weighted
        mean, divided by the sum of the weights.

        Parameters
        ----------
        x, y : array_like (B, N) or (N,)
            Inputs and targets: finite numbers; with a vocabulary of V tokens integers in [0, V).
        weights : array_like of y's shape, optional
            What every target counts: finite numbers of at least 0, not all 0, or booleans. Where one is 0 the target
            does not count and may be anything, such as -100 or NaN; x must be as ever.
        lengths : array_like (B,) of int, optional
            Lengths of the sequences, at most N. What lies past the end of one is not read and costs nothing; the
            encoding is that of N positions.
        threads : int, optional
            Threads at most. The bits do not depend on it.
        draw : int
            Where positions are random: which training step's, from 0.

        Returns
        -------
        loss : float
        gradients : dict of str to array
            By parameter name, in the model's dtype.

        Raises
        ------
        TypeError, ValueError
            If x, y or weights is no array of such numbers, or tokens, or their shapes differ.

        Examples
        --------
        The loss of a model that knows nothing is log V; the next token is the target, so the first has no prediction:

        >>> model = Transformer(ModelConfig("sinusoidal", width=16, causal=True, vocabulary=65, train_length=8))
        >>> model.parameters["head.weight"][...] = model.parameters["head.bias"][...] = 0
        >>> text = np.arange(9) % 65
        >>> loss, gradients = model.loss_and_grads(text[:-1], text[1:])
        >>> round(loss, 4), gradients["embed.weight"].shape
        (4.1744, (65, 16))

        Targets that do not count:

        >>> y = np.where(text[1:] < 4, text[1:], -100)
        >>> round(model.loss(text[:-1], y, weights=y != -100), 4)
        4.1744
        """
        with self._lock:
            loss, gradients = self._gradients(x, y, weights, lengths, threads, draw)
            return loss, self._layout.views_of(sum_in_order(gradients))

    def _gradients(
        self, x: Any, y: Any, weights: Any, lengths: Any, threads: int | None, draw: int, update: Update | None = None
    ) -> tuple[float, Array]:
        """Loss and the groups' gradients (groups, stride), to be summed in order; valid until the next call.

        Where an update is given, it has been applied with these gradients.
        """
        x, y, shares, lengths = self._inputs.batch(x, y, weights, lengths)
        batch, length = x.shape
        groups = self._groups(batch)
        slots = self._encoding.slots(length, self._layout.views, draw, training=True)
        lanes = min(threads_for(threads), groups)
        work = self._scratch(length, lanes, slots, backward=True)
        gradients, losses = work.gradients[:groups], work.losses[:groups]
        panels, nothing, position = self._transposes.panels, Update.none(self.dtype), work.position(slots)

        def run(panels: Array, groups: int, update: Update) -> None:
            run_lanes(
                lanes, model_batch.step, x, y, shares, lengths, self._layout.flat, self._transposes.flat, panels,
                gradients, groups, losses, work.arenas, position, *update, work.sizes, work.offsets,
                self._transposes.offsets, work.arena,
            )  # fmt: skip

        if not self._encoding.initial:
            run(panels, groups, update or nothing)
            return float(losses.sum()), gradients
        run(panels, groups, nothing)
        # the slots' gradients become the parameters', in the first group's row
        target = self._layout.views_of(gradients[0], self._encoding.initial)
        self._encoding.pull(length, self._layout.views, work.slot_gradients(slots, groups), target)
        if update:
            run(panels[:0], 0, update)
        return float(losses.sum()), gradients

    def _groups(self, batch: int) -> int:
        """Groups of a batch: fixed by shapes alone, or the bits would depend on the threads.

        More of them serve more threads, but cost additions, and memory: that of common caches is not to be exceeded.
        """
        most = 8 if batch < 64 else 16
        while most > 4 and most * self._layout.flat.nbytes > _GROUPS_BYTES:
            most //= 2
        return min(batch, most)

    def _scratch(self, length: int, lanes: int, slots: Mapping[str, Any], *, backward: bool) -> Scratch:
        key = (length, lanes, backward)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = Scratch.make(
                self.config, self._layout, length, lanes, 16 if backward else 0, slots, self._encoding.layered,
                self._encoding.learned,
            )  # fmt: skip
        return self._kept[key]


def _restored(config: ModelConfig, flat: Array) -> Transformer:
    """A copy of a model, for `copy` and for worker processes."""
    model = Transformer(config)
    model._layout.flat[...] = flat
    return model
