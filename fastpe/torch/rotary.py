"""`rotated`, which replaces the rotary positions of a Hugging Face model inside a `with` block.

Models of transformers rotate queries and keys by the cosines and sines that a module `rotary_emb` returns, then store
the keys in the cache, and then attend. Inside `rotated`, this module returns the cosines and sines of position 0, which
rotate nothing. So the cache has keys that are not rotated, and fastpe's attention rotates queries and keys by `bands`
and `theta`.

fastpe does not read from the settings how a model rotates, but observes it:

- `rotary_emb` marks its result. The function that applies the result to queries and keys is wrapped. If a layer calls
  this function with a marked result, the layer rotates. All other layers stay as they are.
- The function is called once with unit vectors at position 1. Its result must be a rotation by the model's
  frequencies. It also shows which channels are pairs.
- Attention must receive the queries and keys that the function returned, as their first channels.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fastpe.bands import Band
from fastpe.functional.rotation import rotate
from fastpe.torch.layer import Part, of_heads
from fastpe.torch.operators import array
from fastpe.torch.rotary_choice import Array, Choice, Group, Rotary, Scheme, stacked
from fastpe.torch.transformers import register, register_transformers

_NAME = "fastpe_rotated"
_APPLIES = re.compile(r"apply_\w*rotary")
_CHANGING = {"dynamic", "longrope"}
_hooks: WeakKeyDictionary[torch.nn.Module, "_Hook"] = WeakKeyDictionary()


def is_rotated(model: torch.nn.Module) -> bool:
    """Whether a part of the model is in a block of `rotated`."""
    return any(module in _hooks for module in model.modules())


@contextmanager
def rotated(
    model: torch.nn.Module, scheme: str | None = None, *, keep: Any = None, heads: Any = None, **options: Any
) -> Iterator[torch.nn.Module]:
    """Replace the rotary positions of a Hugging Face model inside a ``with`` block.

    Inside the block, fastpe rotates queries and keys; the weights of the model are not changed. After the block, even
    after an error, the model is exactly as before. Caches, generation, padding on the left, windows, soft caps, sinks,
    dropout and gradients work as in the model itself. A cache that was filled in the block has keys that are not
    rotated: do not use it outside.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model of transformers 5 with rotary positions, such as Llama, Mistral, Qwen, Gemma, OLMo, Phi,
        GPT-NeoX, Cohere or GLM.
    scheme : str, optional
        The positions of all rotated layers:

        - a function of `fastpe.bands`: ``"self_extend"``, ``"rerope"``, ``"leaky_rerope"``, ``"dual_chunk"``,
          ``"shifted"``, ``"lm_infinite"`` or ``"streaming"``, with the model's own frequencies;
        - a rotary encoding of fastpe, such as ``"rope"``, ``"rope_linear"``, ``"rope_ntk"``, ``"rope_yarn"`` or
          ``"rope_dynamic"``. Its frequencies and its temperature (a factor on queries and keys) replace those of the
          model. `base` and `train_length` are those of the model, unless you pass others. Without `factor`, the
          frequencies depend on the number of tokens that have been read so far, and therefore change while tokens are
          generated.

        By default the positions are those of the model.
    keep : array of numbers or booleans that broadcasts to (layers, heads, R/2), optional
        Factors of the frequencies, which come from the fastest to the slowest: 0 drops the rotation of a pair of
        channels, but not the pair itself. One row of R/2 numbers is for all layers and heads; 0.0 drops all rotations
        (DroPE), and 0.5 is linear interpolation.
    heads : array of booleans that broadcasts to (layers, heads), optional
        The heads that `scheme` and `keep` change, such as ``head_scores(model, tokens)["induction"] > 0.5``. All other
        heads keep the model's own positions. By default all heads are changed.
    **options
        Options of the scheme, such as ``group=8, window=1024`` or ``factor=4.0``.

    Yields
    ------
    torch.nn.Module
        The model.

    Raises
    ------
    ImportError
        If transformers 5 is not installed.
    TypeError, ValueError
        If an argument is wrong; if the model is in another `rotated` block, is compiled, or uses gradient
        checkpointing; if its rotary positions have the type "dynamic" or "longrope", whose frequencies change with the
        length; or if it rotates in a way that fastpe cannot replace, as in multi-head latent attention (DeepSeek) or if
        queries are normalised after they are rotated. In the last case, the error is raised by the first forward pass.
        A forward pass also raises it for ``output_attentions=True``, for a static cache, and for positions that are not
        consecutive, such as those of packed documents.

    See Also
    --------
    fastpe.bands : What the schemes do, with their sources.
    fastpe.torch.head_scores : What the heads attend to; it also works in the block.

    Notes
    -----
    `scheme`, `keep` and `heads` apply to layers that rotate. Layers without positions, as in SmolLM 3 and Cohere 2, and
    masks, such as sliding windows, stay as they are. In models with one rotary embedding for each type of layer (Gemma
    3, Olmo 3), all types are changed.

    The functions of transformers that rotate are replaced for all threads. While a model runs in a block, no other
    thread may run a model of the same family.

    Examples
    --------
    >>> model = AutoModelForCausalLM.from_pretrained(path)  # doctest: +SKIP
    >>> with rotated(model, "self_extend", group=8, window=1024):  # doctest: +SKIP
    ...     loss = model(tokens, labels=tokens).loss
    """
    register_transformers()
    hook = _Hook(model, scheme, keep, heads, options)
    register(_NAME, _split)
    with hook.installed(), attending(model, _NAME):
        yield model


@contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """Set the implementation of attention of a model and its parts in a block."""
    configs = {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
    before = [(config, getattr(config, "_attn_implementation", None)) for config in configs.values()]
    try:
        model.set_attn_implementation(name)
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def check_model(model: Any, caller: str) -> None:
    """Raise an error for a model that is no PreTrainedModel, is compiled, or attends in its own way."""
    from transformers import PreTrainedModel

    if hasattr(model, "_orig_mod"):
        raise ValueError(f"model must not be compiled: pass the model that you gave to torch.compile to {caller}")
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"model must be a transformers.PreTrainedModel, not {type(model).__name__}")
    for module in model.modules():
        compiled = hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable") and module not in _hooks
        if compiled or module._compiled_call_impl is not None:
            raise ValueError(f"model must not be compiled, but its {type(module).__name__} is: load it again")
    if not model._can_set_attn_implementation():
        raise ValueError(
            f"{type(model).__name__} computes attention itself, not through transformers' attention interface, so "
            f"{caller} cannot change or observe it"
        )


class _Mark:
    """What a call of `rotary_emb` marks its results with: the rotation, and the positions (B or 1, N) of tokens."""

    def __init__(self, turning: "_Turning", positions: torch.Tensor, outputs: tuple[torch.Tensor, ...]) -> None:
        self.turning, self.positions, self.outputs = turning, positions, outputs
        self._bands: dict[Any, tuple[Band, ...]] = {}

    def bands(self, scheme: Scheme, queries: int, keys: int) -> tuple[Band, ...]:
        """Return the bands of a scheme. All layers of a forward pass share them."""
        key = (scheme, queries, keys)
        if key not in self._bands:
            self._bands[key] = stacked(scheme, queries, keys, self._shifts(queries, keys))
        return self._bands[key]

    def length(self) -> int:
        """The number of tokens that have been read so far."""
        return int(self.positions.max()) + 1

    def _shifts(self, queries: int, keys: int) -> Array:
        """Return the position of the first key, by sample: it is negative after padding on the left, and positive if
        the cache has dropped keys."""
        places = array(self.positions).astype(np.int64)
        shifts: Array = places[:, -1] - (keys - 1)
        expected = np.arange(keys - queries, keys) + shifts[:, None]
        padding = expected < 0  # its positions are all the same
        if places.shape[1] != queries or np.any(places != np.where(padding, places[:, :1], expected)):
            raise ValueError(
                "position_ids must be consecutive and end at the last token, as without padding or with padding on the "
                "left; rotated does not support packed documents, or padding on the right with positions of its own"
            )
        return shifts


class _Turning:
    """A rotation of the model: one rotary embedding, for one type of layers if there are several types."""

    def __init__(self, original: Callable[..., Any], rotary: Any, layer_type: str | None) -> None:
        self._original = original
        prefix = "" if layer_type is None else f"{layer_type}_"
        self._rest = () if layer_type is None else (layer_type,)
        theta = array(getattr(rotary, f"{prefix}inv_freq").double())
        config = getattr(rotary, "config", None)
        stated = getattr(config, "rope_parameters", None) or {}
        stated = stated if layer_type is None else stated.get(layer_type) or {}
        length = stated.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", None)
        factor = getattr(rotary, f"{prefix}attention_scaling", 1.0)
        self.own = Rotary(theta, float(factor), stated.get("rope_theta"), length)
        self.pairs: str | None = None
        self._groups: dict[tuple[int, int], list[Group]] = {}

    def unrotated(self, hook: "_Hook", x: torch.Tensor, positions: torch.Tensor) -> Any:
        """Return the cosines and sines of position 0, with marks."""
        made = self._original(x, torch.zeros_like(positions), *self._rest)
        outputs = made if isinstance(made, tuple) else (made,)
        mark = _Mark(self, positions, outputs)
        hook.marks = [each for each in hook.marks if each.turning is not self] + [mark]
        return made

    def find_pairs(self, name: str, applied: Callable[..., Any], mark: _Mark, args: Any, given: Any) -> str:
        """Return the arrangement of pairs of channels, after checking that `applied` rotates by the frequencies."""
        made = self._original(torch.zeros(1, 1, 1), torch.ones(1, 1, dtype=torch.long), *self._rest)
        ones = made if isinstance(made, tuple) else (made,)

        def at_one(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            for output, one in zip(mark.outputs, ones, strict=True):
                if value is output:
                    return one
            if value.ndim == 4 and value.is_floating_point():
                return torch.eye(value.shape[-1])[None, :, None]
            return value

        try:
            out = applied(*map(at_one, args), **{key: at_one(value) for key, value in given.items()})
            found = (out[0] if isinstance(out, tuple) else out).reshape(-1, args[0].shape[-1]).double()
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise _does_not_fit(name, "rotates in a way that fastpe does not know") from error
        for pairs in ("half", "interleaved"):
            expected = torch.from_numpy(_rotation(self.own, found.shape[-1], pairs))
            if found.shape == expected.shape and (found - expected).abs().max() <= 1e-5 * self.own.factor:
                return pairs
        raise _does_not_fit(name, "does not rotate pairs of channels by positions times frequencies")

    def groups(self, choice: Choice, layer: int, length: int) -> list[Group]:
        """Return the groups of heads of a layer."""
        length = length if choice.depends_on_length() else 1
        if (layer, length) not in self._groups:
            self._groups = {key: found for key, found in self._groups.items() if key[1] == length}
            self._groups[layer, length] = choice.groups(self.own, layer, length)
        return self._groups[layer, length]


def _rotation(own: Rotary, width: int, pairs: str) -> Array:
    """Return the images of the unit vectors, as rows, under a rotation of the first R channels by theta."""
    whole = np.eye(max(width, 2 * len(own.theta)))
    angles = np.broadcast_to(own.theta, (len(whole), len(own.theta)))
    return rotate(whole, pairs=pairs, cos_sin=(own.factor * np.cos(angles), own.factor * np.sin(angles)))


def _does_not_fit(name: str, why: str) -> ValueError:
    return ValueError(f"{name} {why}, so fastpe.torch.rotated cannot take over its rotations")


class _Hook:
    """The changes of one model by `rotated`."""

    def __init__(self, model: Any, scheme: Any, keep: Any, heads: Any, options: dict[str, Any]) -> None:
        check_model(model, "rotated")
        self.name = type(model).__name__
        if is_rotated(model):
            raise ValueError(f"{self.name} is in another block of rotated already")
        if model.training and getattr(model, "is_gradient_checkpointing", False):
            raise ValueError(
                f"{self.name} uses gradient checkpointing, whose second forward pass may run after the block: call "
                "model.gradient_checkpointing_disable() first"
            )
        self._rotaries = [module for module in model.modules() if hasattr(module, "rope_type")]
        if not self._rotaries:
            raise _does_not_fit(self.name, "has no rotary embedding with a rope_type")
        config = model.config.get_text_config()
        self._model = model
        self.choice = Choice(scheme, keep, heads, options, config.num_hidden_layers, config.num_attention_heads)
        self._turnings = {(each, kind): self._turning(each, kind) for each in self._rotaries for kind in _kinds(each)}
        self.marks: list[_Mark] = []  # of the last calls of the rotary embeddings
        self._mark: _Mark | None = None  # of the rotation before the next attention
        self._results: list[torch.Tensor] = []  # of that rotation
        self._applies = False
        self._running = 0  # number of forward passes, one in the other, of modules that own a rotary embedding
        self._rotations = 0

    def _turning(self, rotary: Any, kind: str | None) -> _Turning:
        rope_type = rotary.rope_type if kind is None else rotary.rope_type[kind]
        if rope_type in _CHANGING:
            raise ValueError(
                f"{self.name} has rotary positions of the type {rope_type!r}, whose frequencies change with the "
                "length, so fastpe.torch.rotated cannot take over its rotations"
            )
        if not isinstance(getattr(rotary, "inv_freq" if kind is None else f"{kind}_inv_freq", None), torch.Tensor):
            raise _does_not_fit(self.name, f"has a rotary embedding {type(rotary).__name__} without inv_freq")
        found = _Turning(rotary.forward, rotary, kind)
        self.choice.check(found.own)
        return found

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the rotary embeddings and the functions that apply them in a block."""
        replaced: list[tuple[Any, str, Any]] = []

        def replace(owner: Any, name: str, value: Any) -> None:
            replaced.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, value)

        modules = list(self._model.modules())  # also those that are removed from the model in the block
        homes = {type(module).__module__ for module in modules}
        try:
            for module in modules:
                _hooks[module] = self
                if any(child in self._rotaries for child in module.children()):
                    replace(module, "forward", self._watched(module.forward))
            for rotary in self._rotaries:
                replace(rotary, "forward", self._unrotated(rotary))
            for home in map(sys.modules.get, sorted(homes)):
                for name, value in list(vars(home).items()):
                    if _APPLIES.match(name) and callable(value):
                        replace(home, name, self._noted(value))
            yield
        finally:
            for owner, name, value in reversed(replaced):
                if value is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            for module in modules:
                _hooks.pop(module, None)
            self.marks, self._mark, self._results = [], None, []

    def _watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward pass that raises an error if no layer has rotated although the embedding was asked for."""

        @torch.compiler.disable  # what is noted here is not part of a graph
        @wraps(forward)
        def watched(*args: Any, **given: Any) -> Any:
            self.marks, self._mark, self._results, self._rotations = [], None, [], 0
            self._running += 1
            try:
                found = forward(*args, **given)
            finally:
                self._running -= 1
            if (self.marks and not self._rotations) or self._mark is not None:
                raise _does_not_fit(self.name, "rotates queries and keys outside of transformers' attention interface")
            return found

        return watched

    def _unrotated(self, rotary: Any) -> Callable[..., Any]:
        """Return a forward pass of a rotary embedding that rotates nothing."""
        kinds = _kinds(rotary)

        @wraps(rotary.forward)
        def forward(x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> Any:
            if layer_type not in kinds or position_ids.ndim != 2:
                shape = tuple(position_ids.shape)
                raise _does_not_fit(self.name, f"asks its rotary embedding for positions of the shape {shape}")
            return self._turnings[rotary, layer_type].unrotated(self, x, position_ids)

        return forward

    def _noted(self, applied: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that rotates as before, and notes the results if the cosines have one of the marks."""

        @wraps(applied)
        def noted(*args: Any, **given: Any) -> Any:
            values = (*args, *given.values())
            marks = [mark for mark in self.marks if any(one is each for one in mark.outputs for each in values)]
            if self._applies or not self._running:
                return applied(*args, **given)
            if not marks:
                raise _does_not_fit(self.name, "changes what its rotary embedding returns")
            mark, self._applies = marks[0], True
            try:
                if mark.turning.pairs is None:
                    mark.turning.pairs = mark.turning.find_pairs(self.name, applied, mark, args, given)
                out = applied(*args, **given)
            finally:
                self._applies = False
            if self._mark not in (None, mark) or len(self._results) > 1:
                raise _does_not_fit(self.name, "rotates queries and keys outside of transformers' attention interface")
            self._mark = mark
            self._results += out if isinstance(out, tuple) else (out,)
            return out

        return noted

    def rotation(self, q: torch.Tensor, k: torch.Tensor) -> _Mark | None:
        """Return the rotation before this call of attention, or None if the layer does not rotate."""
        mark, results = self._mark, self._results
        self._mark, self._results = None, []
        if mark is None:
            return None
        if len(results) != 2 or not _ends_with(q, results[0]):
            raise _does_not_fit(self.name, "changes or moves the channels of queries after rotating them")
        if not _ends_with(k, results[1]):
            raise _does_not_fit(
                self.name, "changes the keys after rotating them, or has a cache whose last key is not the newest (a "
                "static cache)",
            )  # fmt: skip
        self._rotations += 1
        return mark


def _kinds(rotary: Any) -> tuple[str | None, ...]:
    """Return the types of layers that have their own rotation, or (None,) if all layers have the same."""
    return tuple(rotary.rope_type) if isinstance(rotary.rope_type, dict) else (None,)


def _ends_with(x: torch.Tensor, newest: torch.Tensor) -> bool:
    """Whether the first channels of the last row of x (B, H, N, D) are the last row of `newest`, (B, H, n, R) or
    (B, n, H, R)."""
    for each in (newest, newest.transpose(1, 2)):
        last = x[:, :, -1, : each.shape[-1]]
        if last.shape == each[:, :, -1].shape and torch.allclose(last, each[:, :, -1], rtol=0, atol=0, equal_nan=True):
            return True
    return False


def _split(module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, given: dict[str, Any]) -> list[Part]:
    """Return the parts of a layer of a model in a block of `rotated`."""
    hook = _hooks.get(module)
    if hook is None:
        raise ValueError(f"attn_implementation={_NAME!r} works only inside of fastpe.torch.rotated")
    mark = hook.rotation(q, k)
    if mark is None:
        return [Part(None, q, k, given)]
    if "spans" in given:
        raise ValueError(f"{type(module).__name__} asks for cu_seq_lens_q, which rotated does not support")
    layer: Any = getattr(module, "layer_idx", None)
    if layer is None:
        raise _does_not_fit(hook.name, "has layers without a number (layer_idx)")
    own, parts = mark.turning.own, []
    for group in mark.turning.groups(hook.choice, layer, mark.length()):
        bands = mark.bands(group.scheme, q.shape[2], k.shape[2])
        more = given | {"bands": bands, "theta": group.theta, "pairs": mark.turning.pairs}
        queries = _rescaled(q, 2 * len(own.theta), (group.factor / own.factor) ** 2)
        heads = None if group.heads is None else torch.from_numpy(group.heads)
        parts.append(Part(None, queries, k, more) if heads is None else of_heads(heads, queries, k, more))
    return parts


def _rescaled(q: torch.Tensor, width: int, factor: float) -> torch.Tensor:
    """Return queries whose first channels are multiplied by a factor."""
    return q if factor == 1 else torch.cat([factor * q[..., :width], q[..., width:]], dim=-1)
