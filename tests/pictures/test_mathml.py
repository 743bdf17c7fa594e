"""LaTeX as MathML: every formula of fastpe converts, and nothing of a text becomes markup of the page."""

import re
from xml.etree import ElementTree

import pytest

from fastpe.encodings import catalogue
from fastpe.encodings.registry import built_in
from fastpe.pictures.mathml import mathml

TAGS = {
    "math", "mfrac", "mi", "mn", "mo", "mover", "mrow", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup",
    "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip


@pytest.mark.parametrize("key", built_in())
def test_every_formula_of_fastpe_converts_completely(key):
    found = mathml(catalogue.entry(key).formula)
    tree = ElementTree.fromstring(found)
    assert tree.tag == "math"
    assert {element.tag for element in tree.iter()} <= TAGS
    text = "".join(tree.itertext())
    assert not re.search(r"[\\&]|quad|mathrm|frac|begin|end", text)


def texts(latex, tag):
    return [element.text for element in ElementTree.fromstring(mathml(latex)).iter(tag)]


def test_words_are_one_element_and_functions_have_thin_spaces():
    assert texts(r"\mathrm{base}^2", "mi") == ["base"]
    assert texts(r"a \cos b", "mspace") == [None, None]
    assert texts(r"\cos(b)", "mspace") == []
    assert texts(r"\max(b)", "mi") == ["max", "b"]


def test_a_prime_stands_beside_its_letter():
    assert mathml(r"\theta'_t").count("<mrow><mi>θ</mi><mi>\N{PRIME}</mi></mrow>") == 1
    assert "msup" not in mathml(r"x'")


def test_lines_are_aligned_at_the_sign():
    found = mathml(r"a &= b \\ & c")
    assert found.count("text-align: -webkit-right; padding-left: 0; padding-right: 0") == 2
    assert found.count("text-align: -webkit-left; padding-left: 0; padding-right: 0") == 2


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<script>alert(1)</script>}", r"\text{&lt;script&gt;alert(1)&lt;/script&gt;}", "<script>x</script>",
        r"\href{javascript:alert(1)}{x}", r"\style{background: url(x)}{x}", r"\class{when}{x}", r"\unicode{x3c}script>",
        r"\operatorname{<img src=x onerror=alert(1)>}", r"\color{red;background:url(x)}{x}", r"\frac{", "a_b_c <b>", "",
        r"\hspace{1em onclick=x}", r"\begin{array}{c|c} a & <b> \end{array}",
    ],
)  # fmt: skip
def test_nothing_of_a_text_becomes_markup(latex):
    found = mathml(latex)
    tree = ElementTree.fromstring(found)
    for element in tree.iter():
        assert element.tag in TAGS | {"pre"}
        assert not any(name.startswith("on") or name in ("href", "class", "id", "src") for name in element.attrib)
        assert not element.get("style") or element.get("style").startswith("text-align: -webkit-")
    assert not re.search(r"<(script|img|b)\b", found)


def test_what_cannot_be_converted_is_shown_as_text():
    assert mathml("a_b_c < d") == "<pre>a_b_c &lt; d</pre>"
