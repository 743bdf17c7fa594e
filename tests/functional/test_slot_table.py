"""The table of slots in the docstring of `fastpe.attention`."""

import pydoc

import pytest

import fastpe
from fastpe.functional.slots import CAUSAL, REFERENCE_ONLY, REFUSED, TOGETHER, documented
from fastpe.kernels.attention.slots import SLOTS

COLUMNS = ("Slot", "Shape", "Gradient", "Meaning", "Combinations")


def rows():
    """The cells of the table by slot, lines of a cell joined by spaces."""
    rule, *lines = documented().splitlines()
    starts = [0, *(i + 2 for i in range(len(rule) - 1) if rule[i : i + 2] == "  ")]
    ends = [start - 2 for start in starts[1:]] + [None]
    found = []
    for line in lines:
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if line.startswith("="):
            continue
        if cells[0]:
            found.append(cells)
        else:
            found[-1] = [f"{above} {below}".strip() for above, below in zip(found[-1], cells, strict=True)]
    return found


def test_every_slot_is_a_row():
    header, *table = rows()
    assert tuple(header) == COLUMNS
    assert [cells[0] for cells in table] == list(SLOTS)
    for name, shape, gradient, meaning, _ in table:
        assert shape.count(",") >= len(SLOTS[name].axes) - 1
        assert gradient == ("no" if name == "index" else "yes")
        assert meaning.lower().startswith(SLOTS[name].meaning.lower())


@pytest.mark.parametrize(("data", "words"), [(REFUSED, "not with"), (REFERENCE_ONLY, "reference only with")])
def test_what_cannot_be_combined_is_in_the_rows_of_both_slots(data, words):
    phrases = {name: combinations.split("; ") for name, *_, combinations in rows()}

    def named(slot):
        return [
            each for phrase in phrases[slot] if phrase.startswith(words) for each in phrase[len(words) :].split(",")
        ]

    for main, others in data.items():
        for other in others:
            for slot, partner in ((main, other), (other, main)):
                if slot in SLOTS:
                    assert f" {partner}" in named(slot), (slot, partner)


def test_what_is_needed_is_in_the_row():
    phrases = {name: combinations for name, *_, combinations in rows()}
    for name in CAUSAL:
        assert "needs causal=True" in phrases[name]
    for names, _ in TOGETHER:
        for name in set(names) & SLOTS.keys():
            needed = next(phrase for phrase in phrases[name].split("; ") if phrase.startswith("needs "))
            assert all(other in needed for other in names if other != name)


def test_help_shows_the_table_unbroken():
    page = pydoc.plain(pydoc.render_doc(fastpe.attention))
    assert all(line in page for line in documented().splitlines())
    assert max(map(len, documented().splitlines())) <= 112
