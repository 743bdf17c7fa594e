"""A Sphinx extension that shows Markdown files of the repository as pages: results, CONTRIBUTING.md, CHANGELOG.md.

Their links lead to the page of the same file if it has one. Links to other files of the repository become plain text.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from reference_pages import write
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FOLDER = "development/from_repository"
_ALSO = {
    "README.md": "index",
    "fastpe/encodings/README.md": "reference/encodings/index",
    "fastpe/encodings/slots.py": "reference/slots",
}


def pages() -> dict[Path, str]:
    """Files of the repository -> the names of their pages."""
    results = {path: f"results/{path.stem}" for path in sorted((ROOT / "bench" / "results").glob("*.md"))}
    others = {
        ROOT / "bench" / "README.md": "results/goals",
        **{ROOT / f"{name}.md": f"{_FOLDER}/{name.lower()}" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")},
    }
    return results | others


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", _write_all, priority=100)
    return {"parallel_read_safe": True}


def _write_all(app: Sphinx) -> None:
    known = pages()
    Path(app.srcdir, "results").mkdir(exist_ok=True)
    for picture in (ROOT / "bench" / "results").glob("*.png"):  # pages of the guide show them, too
        shutil.copyfile(picture, Path(app.srcdir, "results", picture.name))
    for path, page in known.items():
        write(Path(app.srcdir, f"{page}.md"), _for_site(path, known))
    results = sorted(page.removeprefix("results/") for page in known.values() if page.startswith("results/"))
    write(Path(app.srcdir, "results", "index.md"), _index(results))


def _index(names: list[str]) -> str:
    return (
        "# Results\n\nEvery table that was measured in this repository, with the command that makes it again. "
        "[Choosing an encoding](/guide/choosing.md) draws conclusions from them.\n\n"
        "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
    )


def _for_site(path: Path, known: dict[Path, str]) -> str:
    """The content of a Markdown file with links for the site. Images of results are in the folder of their pages."""

    def link(found: re.Match[str]) -> str:
        words, target = found["words"], found["target"].partition("#")[0]
        if re.match(r"[a-z]+:", target) or not target:
            return found[0]
        file = (path.parent / target).resolve()
        if found["image"]:
            return f"![{words}](/results/{file.name})"
        inside = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
        page = known.get(file) or _ALSO.get(inside)
        return f"[{words}](/{page}.md)" if page else words if words.startswith("`") else f"`{words}`"

    lines, code = [], False
    for line in path.read_text("utf-8").split("\n"):
        code ^= line.lstrip().startswith("```")
        lines.append(line if code else _LINK.sub(link, line))
    return "\n".join(lines)
