"""Vocabularies as tokenizer.json and tokenizer_config.json, and back.

Tokens are equal to those of `fastpe.text.vocabulary`, for every text:

- bytes: a BPE without merges. Its symbols are GPT-2's letters for the 256 bytes. One byte, usually 0, is also the end
  of a text and the padding. It is written as ``<0x00>``, because its letter is a letter that texts may contain; as the
  unknown symbol, it also stands for the byte itself.
- characters: one word for each. The unknown symbol is named but not in the vocabulary, so that an unknown character is
  an error, as in fastpe.

A tokenizer of subwords is copied as it is.
"""

from pathlib import Path
from typing import Any

from fastpe.base import files, stored
from fastpe.base.stored import DamagedFileError, damaged
from fastpe.text import subwords
from fastpe.text.subwords import LETTERS, MOST_BYTES, NAME
from fastpe.text.vocabulary import Vocabulary

CONFIG = "tokenizer_config.json"
_UNKNOWN = "<unknown>"


def end_token(vocabulary: Vocabulary, symbol: str | None) -> tuple[int, str] | None:
    """The token that ends a text, and its name in tokenizer.json; None if there is none.

    By default, this is byte 0 for bytes, and none for other tokens.

    Raises
    ------
    ValueError
        If the symbol is not one token, or for subwords not a special token of the tokenizer.
    """
    if symbol is None:
        if vocabulary.kind != "bytes":
            return None
        symbol = "\0"
    tokens = vocabulary.encode(symbol)
    if len(tokens) != 1:
        raise ValueError(f"eos must be one token of the model, not {symbol!r}, which is {len(tokens)}")
    token = int(tokens[0])
    if vocabulary.kind == "tokenizer" and token not in vocabulary.subwords.special:
        raise ValueError(f"eos must be a special token of the tokenizer, not {symbol!r}")
    return token, f"<0x{token:02X}>" if vocabulary.kind == "bytes" else symbol


def content(vocabulary: Vocabulary, end: tuple[int, str] | None) -> dict[str, Any]:
    """The content of tokenizer.json."""
    added = []
    if end is not None:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [{"id": end[0], "content": end[1], **flags, "special": True}]
    if vocabulary.kind == "bytes":
        names = sorted(LETTERS, key=LETTERS.__getitem__)  # by byte
        if end is not None:
            names[end[0]] = end[1]
        model: dict[str, Any] = {
            "type": "BPE", "dropout": None, "unk_token": None if end is None else end[1],
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": {name: byte for byte, name in enumerate(names)}, "merges": [],
        }  # fmt: skip
        own = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        before: dict[str, Any] = own
        after: dict[str, Any] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, own]}
    else:
        words = {symbol: token for token, symbol in enumerate(vocabulary.alphabet)}
        model = {"type": "WordLevel", "vocab": words, "unk_token": _UNKNOWN}
        pattern = {"Regex": r"[\s\S]"}
        before = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        after = {"type": "Fuse"}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": before, "post_processor": None, "decoder": after, "model": model,
    }  # fmt: skip


def write(folder: Path, vocabulary: Vocabulary, length: int, end: tuple[int, str] | None) -> None:
    """Write tokenizer.json and tokenizer_config.json. length: number of positions of the model."""
    own = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    if end is not None:
        own |= {"eos_token": end[1], "pad_token": end[1]}
    text = vocabulary.content if vocabulary.kind == "tokenizer" else files.dump_json(content(vocabulary, end))
    files.write_file(folder / NAME, text)
    files.write_file(folder / CONFIG, files.dump_json(own))


def read(folder: Path, size: int) -> Vocabulary | None:
    """The vocabulary of a folder for a model of `size` tokens; None if it has no tokenizer.json.

    Raises
    ------
    DamagedFileError
        If the tokenizer has more tokens than the model.
    """
    path = folder / NAME
    if not path.exists():
        return None
    own = _own(path)
    if own is not None and own.size != size:
        raise damaged(path, f"it has {own.size} tokens, and the model {size}")
    return _of_subwords(path, size) if own is None else own


def _of_subwords(path: Path, size: int) -> Vocabulary:
    """The vocabulary of a tokenizer that fastpe did not write."""
    try:
        return Vocabulary.of_tokenizer(subwords.read(path), size)
    except ModuleNotFoundError:  # the model reads tokens without the package; text is an error that names it
        content = files.read_file(path, MOST_BYTES)
        return Vocabulary("tokenizer", "", size, subwords.digest_of(content), content)
    except DamagedFileError:
        raise
    except ValueError as error:
        raise damaged(path, error) from None


def _own(path: Path) -> Vocabulary | None:
    """The vocabulary for which `write` wrote this file; None for a tokenizer of another kind."""
    text = files.read_file(path, MOST_BYTES)
    if len(text) > stored.MOST_BYTES:  # none that fastpe writes
        return None
    found = stored.checked(path, files.parsed(path, text), stored.by_key(stored.anything))
    model, added = found.get("model"), found.get("added_tokens")
    if not isinstance(model, dict) or not isinstance(added, list) or not isinstance(model.get("vocab"), dict):
        return None
    ends: list[tuple[int, str]] = [
        (each["id"], each["content"])
        for each in added
        if isinstance(each, dict) and type(each.get("id")) is int and isinstance(each.get("content"), str)
    ]
    try:
        own = Vocabulary() if model.get("type") == "BPE" else Vocabulary("characters", "".join(model["vocab"]))
        return own if content(own, ends[0] if ends else None) == found else None
    except (ValueError, IndexError):
        return None
