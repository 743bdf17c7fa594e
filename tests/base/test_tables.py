"""Tables as CSV and Markdown: hostile cells stay harmless and in their place."""

import csv
import io

import pytest

from fastpe.base.tables import csv_text, markdown_table, markdown_text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠"])  # noqa: RUF001 - wide forms count as well
def test_a_text_is_no_formula(start):
    text = f'{start}HYPERLINK("http://x")'
    ((cell,),) = csv.reader(io.StringIO(csv_text([text], [])))
    assert cell == f"'{text}"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (-1.5, "-1.5"), ("-1.5", "-1.5"), ("+1e-05", "+1e-05"), (-3, "-3"), (float("-inf"), "-inf"), (0.1, "0.1"),
        (None, ""), (True, "True"), ("51-100", "51-100"), ("", ""),
        ("\t=1+1", r"\t=1+1"), ("\r=1+1", " =1+1"), ("a\r\nb", "a b"),
        ("\x1b[2J\x9b\u202e\u2028x", r"\x1b[2J\x9b\u202e x"),
    ],
)  # fmt: skip
def test_numbers_stay_numbers_and_control_characters_are_spelled_out(value, written):
    assert csv_text(["a"], [[value]]) == f"a\n{written or chr(34) * 2}\n"


def test_a_cell_of_markdown_ends_neither_its_cell_nor_its_row_and_begins_no_tag():
    cell = "a|b\n\u2028| c <img src=x> [l](javascript:x) \x1b"
    lines = markdown_table(("head", "b"), [(cell, "1 < 2")]).split("\n")
    assert lines[2] == r"| a\|b  \| c \<img src=x> [l]\(javascript:x) \\x1b | 1 < 2 |"
    assert len(lines) == 3
    assert markdown_text("x\ny</b>") == r"x y\</b>"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\\<script>", r"a\\\<script>"), ("a\\\\<script>", r"a\\\\\<script>"),
        ("[l]\\(javascript:x)", r"[l]\\(javascript:x)"),
        ("a\\|b", r"a\\\|b"), ("\\", r"\\"),
    ],
)  # fmt: skip
def test_a_backslash_does_not_undo_an_escape(text, written):
    """A mark is escaped where an odd number of backslashes stands before it."""
    assert markdown_table(("head",), [(text,)]).split("\n")[2] == f"| {written} |"
