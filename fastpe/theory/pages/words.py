"""Pages of the theory as text: numbers with their bounds or intervals, and one line for each fact."""

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context

from fastpe.theory.pages.quantities import PLACES, VECTORS
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject

Page = Mapping[str, Record]

_ACTS = {
    "table": "adds to the input", "qk_table": "adds to query and key", "taps": "convolves the input",
    "rotors": "maps query and key", "polar": "replaces channels by radii", "angles": "rotates query and key",
    "bias": "bias on scores", "scores": "bias on scores", "index": "bias on scores",
    "rel_key": "vectors of the offset", "rel_query": "vectors of the offset", "rel_value": "vectors of the offset",
    "rel_gain": "gains on scores", "gain": "gains on scores",
    "row_scale": "scales the scores of each query", "counts": "counts keys by content",
    "mlp_in": "corrects scores by a network",
}  # fmt: skip
_ROUNDING = 1e-12  # smaller numbers are rounding errors: they are sums whose terms are about 1


FEW = 3
"""The digits of key quantities."""


def number(value: float, digits: int = 6, rounding: str = ROUND_HALF_EVEN) -> str:
    """Format a number; integers have all their digits.

    >>> number(8318.0), number(0.0004163266), number(math.inf)
    ('8,318', '0.000416327', 'no end')
    >>> number(0.0478151, 3, ROUND_CEILING), number(12345.6, 3), number(2.00471, 3)  # an upper bound is rounded up
    ('0.0479', '12,300', '2.00')
    """
    if 0.0 < abs(value) < _ROUNDING:
        return f"below {_ROUNDING:g}"
    if math.isinf(value):
        return "no end" if value > 0 else "-no end"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    rounded = float(Context(prec=digits, rounding=rounding).create_decimal(value))
    if digits != FEW:
        return f"{rounded:.{digits}g}"
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e6 else f"{rounded:#.{digits}g}".rstrip(".")


def short(value: float) -> str:
    """Format a number with four digits.

    >>> short(0.12345), short(12345.6), short(math.inf)
    ('0.1235', '12,346', 'endless')
    """
    return f"{value:.4g}" if abs(value) < 1000 else "endless" if math.isinf(value) else f"{value:,.0f}"


def cell(record: Record, digits: int = 6) -> str:
    """Format the number of a record and how it is known: "<=" or ">=" for a bound, "+-" for an interval.

    Bounds are rounded outwards.
    """
    low, high = record.low, record.high
    if record.kind == "estimate":
        return (
            f"{record.value:.{min(digits, 5)}g} +- {max(record.value - (low or 0.0), (high or 0.0) - record.value):.2g}"
        )
    if record.kind == "exact" or (low is not None and low == high):
        return number(record.value, digits)
    above, below = number(high or 0.0, digits, ROUND_CEILING), number(low or 0.0, digits, ROUND_FLOOR)
    if low is None:
        return f"<= {above}"
    return f">= {below}" if high is None else f"{below} to {above}"


def cell_or_range(page: Page, record: Record, digits: int = 6) -> str:
    """Format a record like `cell`, as "least-most" if the page also has the least value of the quantity."""
    stem, _, end = record.key.rpartition(".")
    least = page.get(record.name.replace(record.key, f"{stem}.least", 1)) if end == "most" else None
    if least is None or cell(least, digits) == cell(record, digits):
        return cell(record, digits)
    return f"{cell(least, digits)}-{cell(record, digits)}"


def heading(subject: Subject, page: Page) -> str:
    """Return the first line of a page: the name, where the encoding acts, and the sizes."""
    acts = dict.fromkeys(_ACTS[slot] for slot in _ACTS if slot in subject.filled())
    acts |= dict.fromkeys(["lets content decide the decay"] * subject.forgets())
    acts |= dict.fromkeys(["lets content rotate query and key"] * subject.turns())
    acts |= dict.fromkeys(["lets content reflect queries"] * subject.reflects())
    sizes = [f"d {subject.dim}", f"training length {subject.train_length}"]
    sizes += [f"{subject.heads} heads"] * (subject.heads > 1) + ["causal"] * subject.causal
    sizes += [f"{key}={value}" for key, value in subject.options.items()]
    return f"{subject.name}   {', '.join(acts) or 'does nothing'}   {', '.join(sizes)}"


def facts(subject: Subject, page: Page) -> Iterator[str]:
    """Yield the lines of the facts that do not belong to a single length."""
    for slot in PLACES:
        yield from _of_table(page, "" if slot == "table" else f"{slot}.", slot)
    yield from _of_bias(subject, page)
    yield from _of_rotation(page)
    for key in ("taps.reach", "taps.factor", "key_bias.norm", *(f"{slot}.clipped" for slot in VECTORS), "run.spectral"):
        if key in page:
            more = f" ({page[key].inputs['matrix']})" if "matrix" in page[key].inputs else ""
            yield f"{page[key].label}: {cell(page[key])}{more}"
    yield from of_symmetry(page)
    if "parameters" in page:
        gap = page["occam"]
        vacuous = " (vacuous)" if gap.inputs.get("vacuous") else ""
        bound = f"counting parameters bounds the gap of losses in [0, 1] by {gap.value:.3g}{vacuous}"
        yield f"adds {number(page['parameters'].value)} parameters; {bound}"


def _of_table(page: Page, front: str, slot: str) -> Iterator[str]:
    def has(key: str) -> bool:
        return f"{front}{key}" in page

    def shown(key: str) -> str:
        return cell(page[f"{front}{key}"])

    if not has("rank.float64"):
        return
    of = page[f"{front}rank.float64"].inputs["rows"]
    line = f"rank {shown('rank.float64')} (float32 {shown('rank.float32')}, bfloat16 {shown('rank.bfloat16')}) of {of}"
    if has("rank.effective"):
        effective, stable = (page[f"{front}rank.{kind}"].value for kind in ("effective", "stable"))
        line += f", effective {effective:.4g}, stable {stable:.4g}, condition {page[f'{front}condition'].value:.3g}"
    yield line
    kernel = ""
    if has("toeplitz"):
        share = page[f"{front}toeplitz"].value
        exactly = "kernel exactly Toeplitz: it depends only on the distance"
        kernel = exactly if share < _ROUNDING else f"kernel {100 * share:.3g} % non-Toeplitz"
    alike = f"largest |cosine| of two rows {shown('coherence')}" if has("coherence") else ""
    if kernel or alike:
        yield " | ".join(filter(None, (kernel, alike)))
    rows = page[f"{front}distinct.float32"].inputs["rows"]
    parts = [f"different rows of {rows:,}: float32 {shown('distinct.float32')}, bfloat16 {shown('distinct.bfloat16')}"]
    for dtype in ("float32", "bfloat16"):
        if has(f"equal_from.{dtype}"):
            parts.append(f"neighbouring rows equal in {dtype} from {shown(f'equal_from.{dtype}')}")
    if has("zero_from"):
        parts.append(f"zero from {shown('zero_from')}")
    yield " | ".join(parts)
    if has("collision"):
        yield f"embeddings of norm below {shown('collision')} never collide; larger ones can"
    yield f"complexity of linear readouts: {shown('readout')}, certified {shown('readout.bounds')}"


def _of_bias(subject: Subject, page: Page) -> Iterator[str]:
    if "limit.perplexity.most" in page:
        most, within = page["limit.perplexity.most"], page["limit.within.most"]
        least = page["limit.perplexity.least"]
        keys = cell(most) if least.value == most.value else f"{cell(least)}-{cell(most)}"
        yield f"in an endless text: {keys} keys used, 99 % of the weight within {cell(within)} ({most.how})"
    if "distance" in page:
        of = math.log(subject.train_length)
        yield f"information on the distance, content of deviation 1: {cell(page['distance'])} of {of:.3g} nats"
    windows = [
        f"{key.split('.')[1]}: {_keys(subject, record)} keys (content up to 5: "
        f"{_keys(subject, page[key.removesuffix('.0') + '.5'])})"
        for key, record in page.items()
        if key.startswith("window.") and key.endswith(".0") and key.removesuffix(".0") + ".5" in page
    ]
    if windows:
        yield f"certified window at {'; '.join(windows)}"


def _keys(subject: Subject, record: Record) -> str:
    """Format the number of keys up to the largest distance that is kept, on one side or on both."""
    return number(record.value + 1 if subject.causal else 2 * record.value + 1)


def _of_rotation(page: Page) -> Iterator[str]:
    parts = list[str]()
    if "turned" in page:
        parts.append(f"{cell(page['turned'])} of {page['turned'].inputs['channels']} channels turned at least once")
    if "critical" in page:
        parts.append(f"one turn at channel {page['critical'].value:.4g}")
    if "negative_from" in page:
        parts.append(
            f"first negative similarity at lag {cell(page['negative_from'])} (a heuristic for the usable length)"
        )
    if "alias_scale" in page:
        parts.append(f"integer positions alias from a scale of {page['alias_scale'].value:.4g}")
    if parts:
        yield " | ".join(parts)


_KEPT = {
    "const": "equal tokens have equal outputs", "rev": "a reversed text has reversed outputs",
    "perm": "reordered tokens have reordered outputs",
}  # fmt: skip


def of_symmetry(page: Page) -> Iterator[str]:
    """Yield lines on the symmetries of models and the least errors that follow, or none if these are not known."""
    if "symmetry.const" not in page:
        return
    held = [words for name, words in _KEPT.items() if page[f"symmetry.{name}"].value == 0.0]
    measured = any(page[f"symmetry.{name}"].kind != "exact" and not page[f"symmetry.{name}"].value for name in _KEPT)
    yield f"symmetry: {'; '.join(held) or 'none'}{' (found by trial, not proved)' * measured}"
    for ending, what in (("", "least error, at any size of model"), (".constant", "least error on constant inputs")):
        found = _tasks(page, ending)
        if found:
            yield f"{what}: {'; '.join(found)}"
    shares = [f"{each} {value}" for each, value in _shares(page)]
    if shares:
        yield f"largest share of exact answers, at any size of model: {'; '.join(shares)}"


def _tasks(page: Page, ending: str) -> list[str]:
    """Return the tasks of numbers whose least error is above 0, with the error at each length."""
    errors: dict[str, list[Record]] = {}
    for record in page.values():
        parts = record.key.split(".")
        if parts[0] == "task" and parts[2:] == ([ending[1:]] if ending else []):
            errors.setdefault(parts[1], []).append(record)
    if not ending or not _tasks(page, ""):
        return [
            f"{task} {', '.join(cell(each) for each in own)}"
            for task, own in errors.items()
            if any(each.value > 0 for each in own)
        ]
    return []


def _shares(page: Page) -> Iterator[tuple[str, str]]:
    of_answers: dict[str, list[Record]] = {}
    for record in page.values():
        if record.key.startswith("task.") and record.key.endswith(".exact"):
            of_answers.setdefault(record.key.split(".")[1], []).append(record)
    for task, own in of_answers.items():
        if any(each.value < 1 for each in own):
            yield task, _few(own)


def _few(own: Sequence[Record]) -> str:
    values = list(dict.fromkeys(cell(each) for each in own))
    return ", ".join(values)
