"""Results of this repository's studies by encoding, as HTML. They are read from a file of the package."""

import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any


@cache
def studies() -> list[dict[str, Any]]:
    """All studies as dicts: `title`, `about`, `page` (a file), `head` (of the table) and `of` (results by encoding)."""
    text = resources.files("fastpe.pictures.atlas").joinpath("findings.json").read_text("utf-8")
    found: list[dict[str, Any]] = json.loads(text)["studies"]
    return found


def found_of(key: str) -> str:
    """The studies that include an encoding, each with its table; "" if there are none."""
    return "".join(_study(each, each["of"][key]) for each in studies() if key in each["of"])


def count_of(key: str) -> int:
    """Number of studies that include an encoding.

    >>> count_of("sph_harm"), count_of("wavelet") > 3
    (0, True)
    """
    return sum(key in each["of"] for each in studies())


def _study(study: dict[str, Any], own: dict[str, Any]) -> str:
    said = f" <strong>{html.escape(own['said'])}</strong>" if own["said"] else ""
    about = f"<p>{html.escape(study['about'])}{said} Full results: <code>{html.escape(study['page'])}</code>.</p>\n"
    rows = table(study["head"], own["rows"], study["title"]) if own["rows"] else ""
    return f"<h5>{html.escape(study['title'])}</h5>\n{about}{rows}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """An HTML table. The first cell of each row is a header; the table scrolls if the page is narrow.

    >>> print(table(["a", "b"], [["1", "<"]], "signs"))
    <div class="wide" role="region" aria-label="signs" tabindex="0"><table><thead><tr><th scope="col">a</th>\
<th scope="col">b</th></tr></thead><tbody><tr><th scope="row">1</th><td>&lt;</td></tr></tbody></table></div>
    <BLANKLINE>
    """
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = (
        f'<tr><th scope="row">{html.escape(first)}</th>{"".join(f"<td>{html.escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    told = f'class="wide" role="region" aria-label="{html.escape(label, quote=True)}" tabindex="0"'
    return f"<div {told}><table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>\n"
