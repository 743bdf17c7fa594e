"""HTML pages as single files that open offline. Callers must escape the content."""

import html
from importlib import resources


def document(title: str, content: str, package: str, name: str) -> str:
    """Return a complete page that contains its style and script, `name`.css and `name`.js of a package.

    >>> "<h1>1 &lt; 2</h1>" in document("1 < 2", "<p>Indeed.</p>", "fastpe.pictures.atlas", "atlas")
    True
    """
    style, named = _read(package, f"{name}.css"), html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{named}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{style}</style></head>\n'
        f"<body><h1>{named}</h1>\n{content}{script(package, name)}</body></html>\n"
    )


def script(package: str, name: str) -> str:
    """Return the script element with `name`.js of a package. The script may use only elements before it in the page.

    >>> script("fastpe.experiments", "runs").startswith("<script>")
    True
    """
    return f"<script>\n{_read(package, f'{name}.js')}</script>"


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")
