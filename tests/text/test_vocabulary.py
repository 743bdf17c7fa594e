"""Symbols as tokens and back: bytes and characters, what is unknown, what a file of a model says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpe.base.stored import DamagedFileError, checked
from fastpe.text.vocabulary import FORM, UnknownSymbols, Vocabulary, named

TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@given(TEXT)
def test_a_text_comes_back(text):
    kinds = [Vocabulary()] if len(set(text)) == 1 else [Vocabulary(), Vocabulary.of(text)]
    for vocabulary in kinds:
        tokens = vocabulary.encode(text)
        assert vocabulary.decode(tokens) == text
        assert vocabulary.bytes_of(tokens) == text.encode()
        assert tokens.dtype == vocabulary.dtype
        assert tokens.max() < vocabulary.size
        assert vocabulary.widths[tokens].sum() == len(text.encode())
        assert Vocabulary.from_dict(vocabulary.to_dict()) == vocabulary


def test_characters_are_numbered_by_their_code_points():
    vocabulary = Vocabulary.of("bäxä€a")
    assert vocabulary.alphabet == "abxä€"
    assert vocabulary.encode("ax€").tolist() == [0, 2, 4]
    assert vocabulary.widths.tolist() == [1, 1, 1, 2, 3]


def test_many_characters_need_two_bytes():
    vocabulary = Vocabulary.of("".join(map(chr, range(300))))
    assert (vocabulary.dtype, vocabulary.encode("\u012b").tolist()) == (np.uint16, [299])


def test_what_is_unknown_is_named():
    vocabulary = Vocabulary.of("abc")
    with pytest.raises(UnknownSymbols, match=r"the vocabulary has no 'x', 'é' \(U\+00E9\)$"):
        vocabulary.encode("axbéx")
    assert named(set("abcdefghij")).endswith("'h' and 2 more")
    assert named({"\n"}) == r"'\n' (U+000A)"


def test_bytes_that_are_no_utf_8_are_marked():
    assert Vocabulary().decode([97, 255, 98]) == "a\ufffdb"


@pytest.mark.parametrize(
    ("kind", "alphabet", "message"),
    [
        ("words", "", "tokens must be bytes or characters or tokenizer or ids, not 'words'"),
        ("bytes", "ab", "alphabet must be '' for bytes, not 'ab'"),
        ("characters", "ba", "alphabet must be characters in order, each once, not 'ba'"),
        ("characters", "aa", "alphabet must be characters in order, each once"),
        ("characters", "a", "alphabet must have at least two characters, not 'a'"),
    ],
)
def test_what_is_no_vocabulary(kind, alphabet, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(kind, alphabet)


@pytest.mark.parametrize("tokens", [[0, 3], [-1], [0.5]])
def test_what_is_no_token(tokens):
    with pytest.raises(ValueError, match=r"tokens must be integers in \[0, 3\), not "):
        Vocabulary.of("abc").decode(tokens)


def test_the_form_of_a_file_takes_any_characters_and_nothing_else(tmp_path):
    checked(tmp_path, {"kind": "characters", "alphabet": "\n\tä"}, FORM)
    for wrong in ({"kind": "characters", "alphabet": 3}, {"kind": "words", "alphabet": ""}, {"kind": "bytes"}):
        with pytest.raises(DamagedFileError):
            checked(tmp_path, wrong, FORM)
