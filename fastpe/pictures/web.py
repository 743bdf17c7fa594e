"""HTML pages from Jinja2 templates, as single files that open offline. Every value in a template is escaped."""

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Return a template of a package, filled with values.

    A template begins with ``{% extends "fastpe.pictures/page.html" %}``, which has the blocks `style`, `content` and
    `script` and needs the value `title`. Templates read files of packages, such as styles and scripts, by
    ``{{ text("fastpe.experiments/page.css") }}``.

    Parameters
    ----------
    template : str
        A package and a file in it, such as "fastpe.pictures.atlas/atlas.html".
    **values
        The variables of the template. They are escaped, unless they are `markupsafe.Markup`.

    Examples
    --------
    >>> page = render("fastpe.pictures/page.html", title="1 < 2")
    >>> "<title>1 &lt; 2</title>" in page, "<h1>1 &lt; 2</h1>" in page
    (True, True)
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    made.globals["text"] = lambda name: Markup(_read(name))  # a file of a package: not escaped
    return made


def _read(name: str) -> str:
    package, _, file = name.rpartition("/")
    return resources.files(package).joinpath(file).read_text("utf-8")


def document(title: str, content: str, package: str, name: str) -> str:
    """Return a page with content that is HTML already, and with `name`.css and `name`.js of a package."""
    script = f"<script>\n{_read(f'{package}/{name}.js')}</script>\n"
    style = _read(f"{package}/{name}.css")
    return render("fastpe.pictures/page.html", title=title, html=Markup(content + script), css=Markup(style))
