"""The quantities of a page that decide a choice of encoding, each with its unit and its meaning in one sentence.

`fastpe theory` prints these by default, and the whole page with `--all`. No encoding has all of them: a table that is
added to the input has ten; rotations, biases and vectors of the offset have six to eight.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastpe.theory.pages.quantities import IN_WINDOWS
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.pages.words import FEW, cell_or_range

Page = Mapping[str, Record]

TRAINED, LONGEST, ALL_LENGTHS = "training length", "longest length", "all lengths"


@dataclass(frozen=True)
class KeyQuantity:
    """A quantity that decides a choice of encoding.

    Attributes
    ----------
    label : str
        What the quantity is called in the table.
    unit : str
    meaning : str
        One sentence that says how to read the value.
    keys : tuple of str
        The keys of the records that can hold the quantity. The first key that a page has is used, since encodings fill
        different slots.
    at : str
        The length that the value belongs to: `TRAINED`, `LONGEST` (only if it exceeds the training length) or
        `ALL_LENGTHS`.
    """

    label: str
    unit: str
    meaning: str
    keys: tuple[str, ...]
    at: str = ALL_LENGTHS


@dataclass(frozen=True)
class KeyRow:
    """A row of the table: a key quantity at one length, and its value on each page ("-" if the page lacks it)."""

    label: str
    unit: str
    values: tuple[str, ...]
    meaning: str


_VECTORS = ("rel_key", "rel_query", "rel_value", "rel_gain", "gain")

KEY_QUANTITIES = (
    KeyQuantity(
        "nearest two positions", "Euclidean distance",
        "Positions whose rows are closer are harder to tell apart; at 0 two positions have equal rows.",
        ("nearest", "qk_table.nearest"), TRAINED,
    ),
    KeyQuantity(
        "nearest two offsets", "Euclidean distance",
        "Offsets whose vectors are closer are harder to tell apart.",
        tuple(f"{slot}.nearest" for slot in _VECTORS), TRAINED,
    ),
    KeyQuantity(
        "noise for 1 % confusion", "standard deviation",
        "Noise of this size in every channel makes at most 1 % of the positions look like another one.",
        ("noise", "qk_table.noise"), TRAINED,
    ),
    KeyQuantity(
        "effective rank", "dimensions",
        "A readout of the position can use about this many independent features.",
        ("rank.effective", "qk_table.rank.effective"),
    ),
    KeyQuantity(
        "deviation from translation invariance", "fraction",
        "At 0 the product of two rows depends only on their distance, so the table has relative positions.",
        ("toeplitz", "qk_table.toeplitz"),
    ),
    KeyQuantity(
        "keys used at equal content", "keys",
        "If all tokens are equal, attention is spread over this many keys; few mean a strong recency bias.",
        ("perplexity.most",), TRAINED,
    ),
    KeyQuantity(
        "99 % of the weight within, in endless text", "positions",
        'Keys at smaller distances get 99 % of the attention; "no end" means that the reach grows with the text.',
        ("limit.within.most",),
    ),
    KeyQuantity(
        "largest effect of the bias", "fraction",
        "The bias moves at most this share of the attention of any query, for any content.",
        ("effect",), TRAINED,
    ),
    KeyQuantity(
        "least similarity of equal query and key", "fraction",
        "The score of an equal query and key falls to this share of its value at distance 0.",
        ("similarity",), LONGEST,
    ),
    KeyQuantity(
        "first lag of negative similarity", "positions",
        "An equal query and key first repel each other at this distance; a heuristic of the usable length.",
        ("negative_from",),
    ),
    KeyQuantity(
        "farthest from trained rows", "rms row norm",
        "Beyond the training length some row is this far from every row that training has seen.",
        ("drift.relative", "qk_table.drift.relative"), LONGEST,
    ),
    KeyQuantity(
        "channels with unseen angles", "channels",
        "Beyond the training length this many rotary channels have angles that training never saw.",
        ("unseen.channels",), LONGEST,
    ),
    KeyQuantity(
        "weight beyond the training length", "fraction",
        "If all tokens are equal, this share of the attention goes to distances that training never saw.",
        ("beyond",), LONGEST,
    ),
    KeyQuantity(
        "largest offset with its own vector", "positions",
        "One layer cannot tell apart larger offsets on the same side of the query.",
        tuple(f"{slot}.clipped" for slot in _VECTORS),
    ),
    KeyQuantity(
        "different rows in bfloat16", "rows",
        "Of up to 4,096 positions this many keep different rows after rounding to bfloat16.",
        ("distinct.bfloat16", "qk_table.distinct.bfloat16"),
    ),
    KeyQuantity(
        "equal tokens: difference of outputs", "x largest output",
        "Outputs of identical tokens differ by this much; at 0 no model can count positions.",
        ("symmetry.const",),
    ),
    KeyQuantity(
        "reversal: difference of outputs", "x largest output",
        "Outputs change by this much if the text is reversed; at 0 no model can tell left from right.",
        ("symmetry.rev",),
    ),
    KeyQuantity(
        "Lipschitz constant of two layers", "factor",
        "Two layers with unit weights amplify an error of the input at most by this factor.",
        ("lipschitz",), TRAINED,
    ),
    KeyQuantity(
        "Lipschitz constant of the trained model", "factor",
        "The trained model amplifies an error of the input at most by this factor.",
        ("run.lipschitz",), TRAINED,
    ),
    KeyQuantity(
        "learned parameters", "numbers",
        "The encoding adds this many parameters to the model.",
        ("parameters",),
    ),
)  # fmt: skip
"""The key quantities in the order of the table.

They are about resolution, relative position, reach, longer texts, precision, limits and cost.
"""


def key_rows(subjects: Sequence[Subject], pages: Sequence[Page]) -> Iterator[KeyRow]:
    """Yield the rows of the table: key quantities that at least one page has, then the probes of a run's layers.

    Parameters
    ----------
    subjects : sequence of Subject
        The subjects of the pages. A quantity at the longest length has one row for each different longest length.
    pages : sequence of dict of str to Record
        The pages, as `fastpe.theory.page` returns them.

    Examples
    --------
    >>> from fastpe.theory.pages.collect import records, subject_of
    >>> subject = subject_of("rope", train_length=20, length=40)
    >>> for row in key_rows([subject], [records(subject)]):
    ...     print(row.label, *row.values, row.unit, sep=", ")
    least similarity of equal query and key, at 40, 0.477, fraction
    first lag of negative similarity, 725, positions
    channels with unseen angles, at 40, 16, channels
    equal tokens: difference of outputs, 0, x largest output
    reversal: difference of outputs, >= 2.00, x largest output
    Lipschitz constant of two layers, at 20, <= 54, factor
    learned parameters, 0, numbers
    """
    for quantity in KEY_QUANTITIES:
        for column in dict.fromkeys(_column(quantity, subject) for subject in subjects):
            records = [
                _record(quantity, page, column) if _column(quantity, subject) == column else None
                for subject, page in zip(subjects, pages, strict=True)
            ]
            found = [record for record in records if record is not None]
            if found:
                where = _where(found[0], subjects)
                values = tuple(
                    "-" if record is None else cell_or_range(page, record, FEW)
                    for record, page in zip(records, pages, strict=True)
                )
                yield KeyRow(quantity.label + where, quantity.unit, values, quantity.meaning)
    for page in pages:  # only the page of a run has probes, and then there is only one page
        for record in page.values():
            if record.key.startswith("probe."):
                meaning = f"{record.why[0].upper()}{record.why[1:]}."
                yield KeyRow(
                    record.label + _where(record, subjects), "nats", (cell_or_range(page, record, FEW),), meaning
                )


def _column(quantity: KeyQuantity, subject: Subject) -> int | None:
    """Return the length that the value belongs to; None for all lengths; 0, which finds no record, if there is none."""
    if quantity.at == ALL_LENGTHS:
        return None
    longest = subject.columns[-1]
    if quantity.at == TRAINED:
        return subject.train_length
    return longest if longest > subject.train_length else 0


def _record(quantity: KeyQuantity, page: Page, column: int | None) -> Record | None:
    """Return the record of the first key that the page has at this length, or None."""
    names = (key if column is None else f"{key}@{column}" for key in quantity.keys)
    return next((page[name] for name in names if name in page), None)


def _where(record: Record, subjects: Sequence[Subject]) -> str:
    """Return the length or window of a record as text for its label."""
    if record.column is None:
        return ""
    if record.key in IN_WINDOWS:
        first, stop = next(each for each in subjects if record.column in each.columns).window(record.column)
        return f", in [{first},{stop})"
    return f", at {record.column}"
