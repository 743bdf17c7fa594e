"""An encoding's page as HTML: paragraphs, lists and formulas, with links to papers. All text is escaped."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from fastpe.pictures.mathml import mathml

_CODE = re.compile(r"(``?)(.+?)\1")
_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\w)")  # does not match 2**27
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5}(?:v\d+)?)")
_BETWEEN = re.compile(
    r"\n[ \t]*\n|(?<=[.:])\n(?=\*\*)"
)  # a blank line; a line that starts with bold text after a sentence
_SOURCE = "Source:"


class Parts(NamedTuple):
    """A page in three parts: the first sentence, the formula with its explanation, and the rest."""

    title: Markup
    formula: Markup
    rest: Markup


def parts(page: str, latex: str = "") -> Parts:
    """The parts of a page, in HTML. The formula is the text before the source.

    latex: the formula in LaTeX. It is typeset in place of the page's own, which moves to the rest.

    >>> found = parts("A bias.\\n\\n    b = -|j - i|\\n\\nSource: arXiv:2108.12409.\\n\\n**Learns**: `slope`.")
    >>> print(found.title, found.formula, end="")
    A bias. <pre tabindex="0" role="group" aria-label="formula">b = -|j - i|</pre>
    >>> print(found.rest)
    <p>Source: <a href="https://arxiv.org/abs/2108.12409">arXiv:2108.12409</a>.</p>
    <p><strong>Learns</strong>: <code>slope</code>.</p>
    <BLANKLINE>
    """
    first, *blocks = _BETWEEN.split(page.strip("\n"))
    before = next((place for place, block in enumerate(blocks) if block.startswith(_SOURCE)), len(blocks))
    formula, rest = blocks[:before], blocks[before:]
    typeset = ""
    if latex:
        typeset = f'<div class="formula" role="group" aria-label="formula" tabindex="0">{mathml(latex)}</div>\n'
        rest = [block for block in formula if _is_formula(block)] + rest
        formula = [block for block in formula if not _is_formula(block)]
    shown, hidden = ("".join(map(_block, part)) for part in (formula, rest))
    return Parts(inline(" ".join(first.split())), Markup(typeset + shown), Markup(hidden))


def inline(text: str) -> Markup:
    """A line of text with code, bold words and links to arXiv; everything is escaped.

    >>> print(inline("`a < b` of arXiv:1706.03762"))
    <code>a &lt; b</code> of <a href="https://arxiv.org/abs/1706.03762">arXiv:1706.03762</a>
    """
    pieces, end = [], 0
    for code in _CODE.finditer(text):
        as_it_is = html.escape(code[2]).replace("*", "&#42;")  # so that it is not read as bold text
        pieces += [_words(text[end : code.start()]), f"<code>{as_it_is}</code>"]
        end = code.end()
    return Markup(_BOLD.sub(r"<strong>\1</strong>", "".join([*pieces, _words(text[end:])])))


def _words(text: str) -> str:
    return _ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', html.escape(text))


def _block(block: str) -> str:
    """A block between empty lines: an indented formula, or text that may be followed by a list."""
    lines = block.split("\n")
    if _is_formula(block):
        content = html.escape("\n".join(line[4:] for line in lines))
        return f'<pre tabindex="0" role="group" aria-label="formula">{content}</pre>\n'
    return "".join(_flow(lines))


def _is_formula(block: str) -> bool:
    return all(line.startswith("    ") for line in block.split("\n"))


def _flow(lines: list[str]) -> Iterator[str]:
    words, items = list[str](), list[str]()
    for line in lines:
        if line.startswith("- "):
            items.append(line[2:])
        elif items and line.startswith("  "):
            items[-1] += f" {line.strip()}"
        else:
            words.append(line.strip())
    if words:
        yield f"<p>{inline(' '.join(words))}</p>\n"
    if items:
        yield f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>\n"
