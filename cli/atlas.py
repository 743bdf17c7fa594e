"""``fastpe atlas``: one page of all encodings, to read, to search and to choose from."""

from pathlib import Path

import click

from .output import check_folder, encoding_name, own_names

_ENDINGS = (".html", ".htm")


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Where the page goes, a .html."
)
@click.option(
    "--encoding", "names", multiple=True, metavar="NAME", callback=own_names(encoding_name),
    help="Only this one; may be repeated, and be a file of your own: ./mine.py.  [default: all]",
)  # fmt: skip
def atlas(out: Path, names: tuple[str, ...]) -> None:
    """Write one page in HTML about all encodings, which opens offline: for each its formula, pictures, options and
    source, what theory says of it, and what the studies of fastpe found.

    The page has a search and filters, which its address keeps: atlas.html#use=images, atlas.html#rope. A file of this
    name is replaced.
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
            raise click.UsageError(f"--encoding is one encoding, not several: {name!r}")
    if names:
        every = [catalogue.entry(name) for name in sorted(set(names))]
    else:
        every, problems = catalogue.entries()
        for problem in problems.values():
            click.echo(f"fastpe: {problem}", err=True)
    from fastpe.pictures.atlas import page

    from .progress import Reporter

    with Reporter() as reporter:
        reporter.open(len(every), 0, "encodings")

        def told(key: str) -> None:
            reporter.show("encodings", key)
            reporter.advance(1)

        content = page.atlas(every, told)
    files.write_file(out, content.encode())
    click.echo(f"written: {out}", err=True)
