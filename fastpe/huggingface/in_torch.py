"""Checkpoints that `fastpe.load_hf` cannot describe, run by transformers in PyTorch to test them on texts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base import stored
from fastpe.base.stored import damaged
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.huggingface import loading, tokenizer
from fastpe.huggingface.checkpoint import Checkpoint
from fastpe.huggingface.values import SIZE, NoEqual, Values
from fastpe.kernels.threads.team import at_most, threads_for
from fastpe.model.banded import parsed
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

_AT_ONCE = 2**15  # tokens that pass through the model together, unless one sequence has more
_LOGITS = 2**22  # logits in memory at a time
_ERRORS = (AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def load_any(folder: Path) -> Transformer:
    """Return the model of a folder: that of `load_hf`, or an `InTorch` if there is none.

    Raises
    ------
    ValueError
        If `load_hf` cannot describe the model and PyTorch or transformers is missing, or if they cannot run it either.
    fastpe.base.stored.DamagedFileError, OSError
        As for `load_hf`.
    """
    try:
        return loading.load_hf(folder)
    except NoEqual as error:
        try:
            import torch  # noqa: F401 - the error should name both packages
            import transformers  # noqa: F401
        except ImportError:
            raise ValueError(
                f"{error}. This command does so as well if the packages torch and transformers are installed"
            ) from None
        return InTorch(folder)


class InTorch(Transformer):
    """A causal language model that transformers runs in PyTorch.

    It computes logits only. `config` has the number of its tokens and its training length; all other settings, and
    `parameters`, are not those of the model.

    Parameters
    ----------
    folder : pathlib.Path
        A folder of ``save_pretrained`` with safetensors.
    """

    def __init__(self, folder: Path) -> None:
        values = Values.read(folder / loading.CONFIG)
        self.architecture = values.required("model_type", stored.text)
        self._model = _loaded(folder, Checkpoint(folder))
        stated = self._model.config.get_text_config()
        rope = getattr(stated, "rope_parameters", None) or {}
        length = rope.get("original_max_position_embeddings") or getattr(stated, "max_position_embeddings", None)
        if type(length) is not int:
            length = values.get("max_position_embeddings", SIZE, 2048)
        super().__init__(
            ModelConfig(
                "nope", width=2, hidden=1, layers=1, tied=True, causal=True, vocabulary=stated.vocab_size,
                train_length=length,
            )
        )  # fmt: skip
        self.vocabulary = tokenizer.read(folder, stated.vocab_size)
        self.bands: str | None = None
        self._check(folder)

    def __repr__(self) -> str:
        return f"<InTorch: {type(self._model).__name__}, bands {self.bands or 'none'}>"

    def with_bands(self, scheme: str) -> "InTorch":
        """Return the model with the rotary positions of a scheme of `fastpe.bands`, by `fastpe.torch.rotated`.

        Raises
        ------
        ValueError
            If there is no such scheme, or if `rotated` refuses the model.
        """
        parsed(scheme)
        changed = object.__new__(InTorch)
        vars(changed).update(vars(self))
        changed.bands = scheme
        changed(np.zeros((1, 2), int))  # raises the errors of `rotated` now
        return changed

    def _check(self, folder: Path) -> None:
        """Raise ValueError if outputs depend on later tokens, or if rows of logits differ from those of the model."""
        import torch

        x = np.array([[0, 1, 0], [0, 1, 1]])
        with _in_one_line(folder), torch.inference_mode():
            right = self._model(torch.from_numpy(x), use_cache=False).logits.numpy()
            rows = self(x)
        most = 1e-4 * np.abs(right).max()
        if not np.abs(right[0, :2] - right[1, :2]).max() <= most:
            raise ValueError(f"{folder}: {type(self._model).__name__} reads later tokens, so it has no loss on a text")
        if not np.abs(rows - right).max() <= most:
            raise ValueError(f"{folder}: {type(self._model).__name__} does not compute its logits by rows")

    def _outputs(self, rows: Array, lengths: Array, threads: int | None, draw: int) -> Array:
        y = self._empty("outputs", rows, self.config.vocabulary)
        self._by_rows(rows, lengths, np.ones(rows.shape, bool), y.reshape(rows.size, -1).__setitem__, threads, draw)
        return y

    def _by_rows(
        self, x: Array, lengths: Array, wanted: Array, use: Callable[[slice, Array], None], threads: int | None,
        draw: int,
    ) -> None:  # fmt: skip
        import torch

        most, some, done = max(1, _LOGITS // self.config.vocabulary), max(1, _AT_ONCE // x.shape[1]), 0
        with torch.inference_mode(), _at_most(threads), self._rotated():
            for first in range(0, len(x), some):
                tokens = torch.from_numpy(x[first : first + some].astype(np.int64))
                body = self._model.get_decoder()
                found = self._passed(body, tokens)
                rows = found.last_hidden_state[torch.from_numpy(wanted[first : first + some])]
                for block in rows.split(most):
                    found.last_hidden_state = block[None]
                    with _returning(body, found):
                        logits = self._model(tokens[:1, :1], use_cache=False).logits[0]
                    use(slice(done, done + len(block)), logits.float().numpy())
                    done += len(block)

    def _passed(self, body: Any, tokens: Any) -> Any:
        try:
            return body(tokens, use_cache=False)
        except (IndexError, RuntimeError) as error:
            if "index" not in str(error):
                raise
            length = tokens.shape[1]
            raise BeyondTrainingLength(f"{type(self._model).__name__} has no positions for length {length}") from error

    def _rotated(self) -> Any:
        if self.bands is None:
            return nullcontext()
        import fastpe.torch

        name, options = parsed(self.bands)
        return fastpe.torch.rotated(self._model, name, **options)

    def __reduce__(self) -> Any:
        return self._loss()

    def save(self, path: Any) -> None:
        """Raise ValueError: the model is in its own folder."""
        self._loss()

    def _loss(self, *_: Any) -> Any:
        raise ValueError("a model that runs in PyTorch can only be tested on a text, not trained, saved or continued")

    def _gradients(self, *_: Any) -> Any:
        return self._loss()

    def _writer(self, *_: Any) -> Any:
        return self._loss()


def _loaded(folder: Path, checkpoint: Checkpoint) -> Any:
    """The model in float32. Tensors that are missing are an error; transformers would draw them."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with _in_one_line(folder):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder.resolve()), dtype=torch.float32, output_loading_info=True, use_safetensors=True,
            local_files_only=True, trust_remote_code=False,
        )  # fmt: skip
    for name in sorted(report["missing_keys"]):
        raise damaged(folder, f"no safetensors file holds {name}")
    for name in sorted(report["unexpected_keys"] & checkpoint.shapes.keys()):
        raise damaged(checkpoint.path(name), f"{type(model).__name__} has no tensor {name}")
    return model.eval()


@contextmanager
def _in_one_line(folder: Path) -> Iterator[None]:
    """Turn an error of transformers or PyTorch into a ValueError of one line that names the folder."""
    try:
        yield
    except _ERRORS as error:
        reason = stored.cut(stored.printable(" ".join(str(error).split())))
        raise ValueError(f"{folder}: transformers cannot run the model: {reason}") from error


@contextmanager
def _at_most(threads: int | None) -> Iterator[None]:
    """Let PyTorch and the kernels use so many threads."""
    import torch

    before, workers = torch.get_num_threads(), threads_for(threads)
    torch.set_num_threads(workers)
    try:
        with at_most(workers):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _returning(module: Any, value: Any) -> Iterator[None]:
    """Let a module return a value instead of computing it."""
    before = vars(module).get("forward")
    module.forward = lambda *args, **given: value
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
