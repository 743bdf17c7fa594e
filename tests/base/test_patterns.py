"""Patterns and names out of a stranger's file: none takes memory or time without bound."""

import pytest

from fastpe.base.patterns import MOST_CHARACTERS, expanded
from fastpe.encodings import registry


@pytest.mark.parametrize(
    "pattern", ["nope*00000110000000000", "nope*000001" + "9" * 900, ",".join(["nope*9999"] * 500), "nope," * 9000]
)
def test_a_pattern_of_too_many_layers_is_refused(pattern):
    with pytest.raises(ValueError, match=r"layers|characters"):
        expanded("encoding", pattern)


def test_a_sum_of_too_many_characters_is_refused():
    with pytest.raises(ValueError, match=f"encoding must have at most {MOST_CHARACTERS} characters"):
        registry.canonical("+".join(f"nope@a{n}" for n in range(5000)))
