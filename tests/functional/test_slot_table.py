"""The table of slots in the docstring of `fastpe.attention`."""

import pydoc

import fastpe
from fastpe.functional.slots import documented
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


def test_rows_say_what_is_needed_and_what_cannot_be_combined():
    found = {name: combinations for name, *_, combinations in rows()}
    assert found["bias"] == ""
    assert found["index"] == "needs values"
    assert found["growth"] == "needs causal=True; not with bands, polar, reflectors; reference only with mlp_in"
    assert found["counts"] == "needs causal=True; not with bands, polar; reference only with mlp_in, reflectors"
    assert found["mlp_out"] == "needs mlp_in, mlp_bias; no axis B; reference only with reflectors"
    assert found["theta"] == "needs bands; no axis B; not with reflectors; reference only with mlp_in"


def test_help_shows_the_table_unbroken():
    page = pydoc.plain(pydoc.render_doc(fastpe.attention))
    assert all(line in page for line in documented().splitlines())
    assert max(map(len, documented().splitlines())) <= 112
