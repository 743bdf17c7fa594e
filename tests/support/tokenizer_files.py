"""Small tokenizers in the format tokenizer.json, of the kinds that released models have."""

import json

import pytest

tokenizers = pytest.importorskip("tokenizers")

from tokenizers import (  # noqa: E402
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)  # fmt: skip

from fastpe.text import subwords  # noqa: E402

TEXT = "The cat sat on the mat.\nFünf Boxkämpfer jagen Viktor: 12 of 345 …\n\n日本語 and \U0001f600 again, again. " * 8


def byte_level(text=TEXT, size=300):
    """As that of GPT-2."""
    return subwords.trained(iter([text]), size)


def with_special(content, *tokens):
    """A tokenizer with special tokens after its own."""
    made = Tokenizer.from_str(content.decode())
    made.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    return made.to_str().encode()


def changed(content, **parts):
    """A tokenizer with other parts in its JSON."""
    return json.dumps({**json.loads(content), **parts}, ensure_ascii=False).encode()


def sentencepiece(text=TEXT, size=120):
    """As that of Llama 2: spaces are U+2581, one stands before the text, unknown characters are bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(
        [text.replace("\U0001f600", "")],
        trainers.BpeTrainer(vocab_size=256 + size, special_tokens=special, show_progress=False),
    )
    found = json.loads(made.to_str())
    found["added_tokens"] = [token for token in found["added_tokens"] if token["content"] == "<unk>"]
    return json.dumps(found).encode()


def lower_case(text=TEXT, size=300):
    """A tokenizer whose normalizer changes the text."""
    made = Tokenizer.from_str(byte_level(text.lower(), size).decode())
    made.normalizer = normalizers.Lowercase()
    return made.to_str().encode()


def word_pieces():
    """As that of BERT."""
    words = ["[UNK]", "the", "cat", "##s", "sat", ".", "on", "mat"]
    made = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made.to_str().encode()


def single_digits(text=TEXT, size=300):
    """A tokenizer that never merges digits."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    return made.to_str().encode()


def with_template(content):
    """A tokenizer that puts a token before every text, for models that expect one."""
    made = Tokenizer.from_str(with_special(content, "<s>").decode())
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
    )
    return made.to_str().encode()
