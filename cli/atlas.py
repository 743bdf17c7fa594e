"""``fastpe atlas``: write an HTML page about all encodings."""

from pathlib import Path

import click

from .options import ENCODING
from .output import check_folder
from .terminal import next_step, opening

_ENDINGS = (".html", ".htm")


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="HTML file, such as atlas.html."
)
@click.option(
    "--encoding", "names", multiple=True, metavar="NAME", type=ENCODING,
    help="Encoding to include, or a file that defines your own, such as ./mine.py; may be repeated.  [default: all]",
)  # fmt: skip
def atlas(out: Path, names: tuple[str, ...]) -> None:
    """Write an HTML page about all encodings.

    The page shows the formula, pictures, options, source, theoretical properties and study results of each encoding. A
    browser can open it offline. A search and filters become part of the page's address, such as
    atlas.html#use=images. The address atlas.html#rope leads to one encoding. If the file exists, it is replaced.
    """
    if out.suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"--out must end in .html, not {str(out)!r}")
    check_folder("--out", out)
    from fastpe.base import files
    from fastpe.encodings import catalogue
    from fastpe.encodings.registry import list_encodings

    known = list_encodings()
    for name in names:
        if name not in known:
            raise click.UsageError(f"--encoding must be a single encoding, not {name!r}")
    if names:
        every = [catalogue.entry(name) for name in sorted(set(names))]
    else:
        every, problems = catalogue.entries()
        for problem in problems.values():
            click.echo(f"fastpe: {problem}", err=True)
    from fastpe.pictures.atlas import page

    from .progress import Reporter

    with Reporter() as reporter:
        reporter.open(len(every), 0, "")

        def told(key: str) -> None:
            reporter.head(key)
            reporter.advance(1)

        content = page.atlas(every, told)
    files.write_file(out, content.encode())
    click.echo(f"written: {out}", err=True)
    next_step({opening(out): "open the page"})
