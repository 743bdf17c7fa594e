"""What files hold is bounded before it is parsed, and every value that does not belong is named."""

import sys
from pathlib import Path

import pytest

from fastpe.base import stored
from fastpe.base.stored import DamagedFileError, checked, parse, parse_toml


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 200_000, "it is nested more than 32 levels deep"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "it is nested more than 32 levels deep"),
        (b"1" * 4000, "it holds a number of 4000 digits"),
        (b"0." + b"1" * 4000, "it holds a number beyond float64"),
        (b"1e999", "it holds a number beyond float64: '1e999'"),
        (b"NaN", "it holds NaN, which is not a JSON number"),
        (rb'{"a": "x\ud800"}', "it holds half of a surrogate pair, which is not a character"),
        (rb'{"\uDfff": 1}', "it holds half of a surrogate pair, which is not a character"),
        (b"[-Infinity]", "it holds -Infinity"),
        (b'{"epoch": 1, "epoch": 2}', "it has a key twice"),
        (b'{"epoch": 1', "it is not JSON: Expecting ',' delimiter in line 1"),
        (b"", "it is not JSON"),
        ('"é"'.encode("latin-1"), "its bytes are not UTF-8"),
        ("[1]".encode("utf-16"), "its bytes are not UTF-8"),
        (b" " * (stored.MOST_BYTES + 1), "it is larger than 4194304 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_json_of_ours_is_refused_before_it_can_do_harm(content, message):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)  # a parser that only minds Python's own limit would overflow the stack
    try:
        with pytest.raises(ValueError, match=message.replace("[", r"\[")):
            parse(content)
    finally:
        sys.setrecursionlimit(limit)


def test_what_is_within_the_limits_is_read():
    assert parse(b"[" * 32 + b"]" * 32) is not None
    assert parse(b'{"a": "[[[[\\"[[[[", "b": [1, -2.5e-300, null, true]}') == {
        "a": '[[[["[[[[', "b": [1, -2.5e-300, None, True],
    }  # fmt: skip
    assert parse(b'"' + b"[" * 1000 + b'"') == "[" * 1000
    assert parse(b"1" * 40) == int("1" * 40)
    assert parse(rb'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", "\\ud800"]


def test_long_texts_take_no_more_memory_than_they_have():
    import tracemalloc

    for text in (b'"' + b"a" * 2**21 + b'"', b'"' + rb"\\" * 2**20 + b'"'):
        tracemalloc.start()
        parse(text)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * len(text)


def test_what_an_error_says_of_a_file_is_short_and_steers_no_terminal(tmp_path):
    said = str(stored.damaged(tmp_path, "\x1b[2J\n" + "x" * 10**6))
    assert said.isprintable()
    assert r"\x1b[2J xxx" in said
    assert len(said) < len(str(tmp_path)) + 600
    with pytest.raises(stored.Unfit, match=r"note is 'a\\x1b', where a text was expected"):
        stored.text("note", "a\x1b")


WHOLE, LOSS = stored.whole(1, 20), stored.number(0.0)
FORM = stored.record({"epoch": WHOLE, "loss": stored.maybe(LOSS)}, optional={"note": stored.text})


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (WHOLE, 0, "key is 0, where a whole number from 1 to 20 was expected"),
        (WHOLE, 21, "from 1 to 20"), (WHOLE, True, "key is True"), (WHOLE, 1.0, "key is 1.0"),
        (WHOLE, "x", "key is 'x'"), (WHOLE, None, "key is None"), (WHOLE, 10**99, r"key is 1000\d*\.\.\.\d*, where"),
        (LOSS, -1e-9, "a finite number of at least 0 was expected"), (LOSS, True, "key is True"),
        (LOSS, "1", "key is '1'"), (stored.number(), [], r"key is \[\], where a finite number was expected"),
        (LOSS, float("inf"), "key is inf"), (LOSS, float("nan"), "key is nan"),
        (stored.text, 1, "key is 1, where a text was expected"),
        (stored.exactly(1), True, "key is True, where 1 was expected"), (stored.exactly(1), 1.0, "key is 1.0"),
        (stored.exactly([0, 4]), [0, 5], r"key is \[0, 5\], where \[0, 4\] was expected"),
        (stored.one_of("F32", "F64"), "I8", "key is 'I8', where F32 or F64 was expected"),
        (stored.one_of("F32"), ["F32"], "where F32 was expected"),
        (stored.sha256, "A" * 64, "where a SHA-256"), (stored.sha256, "a" * 63, "where a SHA-256"),
        (stored.sha256, "a" * 64 + "\n", "where a SHA-256"),
        (stored.each(WHOLE), [1, 2, 0], r"key\[2\] is 0"), (stored.each(WHOLE), {}, "a list of 0 to 65536 values"),
        (stored.each(WHOLE, 2, 2), [1], "where 2 values was expected"), (stored.each(WHOLE, most=1), [1, 1], "0 to 1"),
        (stored.by_key(WHOLE), [], "where an object was expected"), (stored.by_key(WHOLE), {"a": 0}, r"key\.a is 0"),
        (stored.by_key(WHOLE), {"a b\n": 0}, r"key\.'a b\\n' is 0"),
        (FORM, {"epoch": 1}, r"key\.loss is missing"), (FORM, [], "where an object was expected"),
        (FORM, {"epoch": 1, "loss": None, "more": 3}, r"key\.more is 3, where no such key was expected"),
        (FORM, {"epoch": 1, "loss": -1}, r"key\.loss is -1"), (FORM, {"epoch": 1, "loss": 1, "note": 1}, r"key\.note"),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_form_is_named(form, value, message):
    with pytest.raises(DamagedFileError, match=rf"^folder/file is damaged: .*{message}") as caught:
        checked(Path("folder/file"), value, form, "key")
    assert len(str(caught.value)) < 300


def test_values_of_the_right_form_are_returned():
    for form, value in (
        (FORM, {"epoch": 20, "loss": 0}), (FORM, {"epoch": 1, "loss": None, "note": ""}), (stored.anything, object),
        (stored.sha256, "0123456789abcdef" * 4), (stored.each(WHOLE), []), (stored.number(), -1e300),
    ):  # fmt: skip
        assert checked(Path("x"), value, form) is value


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\u00a0b \u3000 \u00e9", "a\u00a0b \u3000 \u00e9"), ("two\nlines", "two lines"), ("\x1b[2J", r"\x1b[2J"),
        ("\u202etxt", r"\u202etxt"), ("a\u2028b", "a b"), ("\x9b1m", r"\x9b1m"),
    ],
)  # fmt: skip
def test_what_would_steer_a_terminal_is_spelled_out(given, shown):
    assert stored.printable(given) == shown
    stored.text("key", shown)
    if given != shown:
        with pytest.raises(stored.Unfit):
            stored.text("key", given)


_LONG = ".".join("a" * 30_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{_LONG} = 1", "a key has more than 8 parts"),
        (f"[{_LONG}]", "a key has more than 8 parts"),
        (f'x = {{ y = "\\"", {_LONG} = 1 }}', "a key has more than 8 parts"),
        (" . ".join(["'a'", '"b.\\"c"', "d\t"] * 3) + " = 1", "a key has more than 8 parts"),
        (f'"""\n"#\\"""" = 1\n{_LONG} = 1', "a key has more than 8 parts"),
        ("x = " + "[" * 100_000, "it is nested more than 32 levels deep"),
        ("x = " + "{ y = " * 33 + "1" + "}" * 33, "it is nested more than 32 levels deep"),
        ("x = ", "it is not TOML: Invalid value"),
    ],
)
def test_toml_of_any_depth_is_refused_before_it_is_parsed(text, message):
    with pytest.raises(ValueError, match=message):
        parse_toml(text)


def test_strings_comments_and_numbers_of_toml_count_as_nothing():
    dots, deep = "a.b.c.d.e.f.g.h.i.j", "{" * 40
    text = f"""x = '{dots} [[['  # {dots} {deep}
y = [1.5, 2.5, "{dots}"]
z = '{deep}'
several = \'\'\'{deep}
{dots} = 1\'\'\'
[a.b]
"""
    assert parse_toml(text) == {
        "x": f"{dots} [[[", "y": [1.5, 2.5, dots], "z": deep, "several": f"{deep}\n{dots} = 1", "a": {"b": {}},
    }  # fmt: skip
