"""LaTeX formulas as MathML, for pages in HTML."""

import html
from itertools import zip_longest
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element

_TAGS = {
    "math", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle",
    "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
_ATTRIBUTES = {
    "accent", "accentunder", "depth", "display", "displaystyle", "fence", "form", "height", "largeop", "linethickness",
    "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "rspace", "scriptlevel", "separator", "stretchy",
    "symmetric", "voffset", "width",
}  # fmt: skip
_ALIGNMENTS = {"left": "-webkit-left", "right": "-webkit-right"}  # Chromium ignores "left" and "right" here
_THIN = "0.167em"  # the space between an operand and the name of a function
_PRIME = "\u2032"


def mathml(latex: str) -> str:
    r"""A displayed formula as an element ``math``, to be put into a page of HTML.

    Parameters
    ----------
    latex : str
        One line, or lines separated by ``\\`` and aligned at ``&``, as in the environment ``align*``.

    Returns
    -------
    str
        MathML Core. What cannot be converted is returned as escaped text in an element ``pre``. The result contains
        only elements and attributes that format a formula: no scripts, links, styles or identifiers of the text.

    Examples
    --------
    >>> mathml(r"a < b")
    '<math display="block"><mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow></math>'
    >>> mathml(r"a_b_c < d")
    '<pre>a_b_c &lt; d</pre>'
    """
    lines = rf"\begin{{align*}}{latex}\end{{align*}}" if r"\\" in latex or "&" in latex else latex
    try:
        math = convert_to_element(lines, display="block")
        _clean(math)
        return tostring(math, encoding="unicode")
    except Exception:  # the package's errors have no common class
        return f"<pre>{html.escape(latex.strip())}</pre>"


def _clean(element: Element) -> None:
    """Keep only what is listed above, and set spaces, primes and columns as browsers need it.

    The package writes characters as references such as "&#x0003D;". They are replaced by the characters, which
    `tostring` escapes.
    """
    if element.tag not in _TAGS:
        raise ValueError(f"{element.tag} is no element of a formula")
    style = _alignment(element)
    for name in element.attrib.keys() - _ATTRIBUTES:
        del element.attrib[name]
    if style:
        element.set("style", style)
    element.text = html.unescape(element.text or "") or None
    for child in element:
        _clean(child)
    _join_words(element)
    _space_functions(element)
    _lower_primes(element)


def _alignment(element: Element) -> str:
    """Return the style of a cell. In MathML Core, tables have no attributes for this."""
    if element.tag == "mtable" and (element.get("columnspacing") or "").startswith("0em"):  # columns that meet
        for row in element:
            for cell in row:
                cell.set("columnspacing", "0em")
    if element.tag != "mtd" or element.get("columnalign") not in _ALIGNMENTS:
        return ""
    padding = "; padding-left: 0; padding-right: 0" if element.get("columnspacing") else ""
    return f"text-align: {_ALIGNMENTS[element.get('columnalign', '')]}{padding}"


def _join_words(element: Element) -> None:
    """Replace the letters of an upright word, one element each, by one element with the word."""
    letters = [child.get("mathvariant") == "normal" for child in element]
    if sum(letters) > 1 and all(upright or child.tag == "mn" for child, upright in zip(element, letters, strict=True)):
        word = Element("mi")
        word.text = "".join(child.text or "" for child in element)
        element[:] = [word]


def _space_functions(element: Element) -> None:
    """Put thin spaces around names of functions, unless an operator or a bracket follows or precedes."""
    if element.tag not in ("math", "mrow", "mtd", "msqrt", "mstyle"):
        return
    spaced: list[Element] = []
    for child, following in zip_longest(element, element[1:]):
        function = _is_function(child)
        if function and spaced and spaced[-1].tag not in ("mo", "mspace", "mtext"):
            spaced.append(Element("mspace", width=_THIN))
        spaced.append(child)
        if function and following is not None and not _opens(following):
            spaced.append(Element("mspace", width=_THIN))
    element[:] = spaced


def _is_function(element: Element) -> bool:
    """Whether an element is the name of a function such as sin or max, which may have an index."""
    if element.tag in ("msub", "msup", "msubsup"):
        return len(element) > 0 and _is_function(element[0])
    text = element.text or ""
    if element.tag not in ("mi", "mo") or len(text) < 2 or not text.isalpha() or text == "mod":
        return False
    element.tag = "mi"
    element.attrib.clear()
    return True


def _opens(element: Element) -> bool:
    if len(element) and element.tag == "mrow":
        return _opens(element[0])
    return element.tag in ("mo", "mspace")


def _lower_primes(element: Element) -> None:
    """Put primes next to their letter: as superscripts they would be too small and too high."""
    if element.tag in ("msup", "msubsup") and set(element[-1].text or "") == {_PRIME}:
        letter, *index, prime = element
        both = Element("mrow")
        both[:] = [letter, prime]
        element.tag, element[:] = ("msub", [both, *index]) if index else ("mrow", [letter, prime])
