"""The README's commands, run as they stand there, and the table of encodings.

    python tests/support/readme.py test      print the test command
    python tests/support/readme.py check     run every other block of shell commands, stopping at the first failure
    python tests/support/readme.py table     print the table of encodings, as it stands in fastpe/encodings/README.md
    python tests/support/readme.py write     write that table there

A block of shell commands follows a line `<!-- commands: NAME -->`; test_readme.py sees to it that none goes without.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastpe.encodings.catalogue import Entry

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LIST = ROOT / "fastpe" / "encodings" / "README.md"
COLUMNS = ("key", "what it is", "acts on", "learns", "needs", "direction", "beyond", "reported", "source")
TABLE = re.compile(r"<!-- table of encodings -->\n(.*?)\n<!-- end of table -->", re.DOTALL)


def blocks() -> dict[str, str]:
    """The shell commands by the name of their block."""
    return dict(re.findall(r"<!-- commands: (\w+) -->\n```sh\n(.*?)```", README.read_text(), re.DOTALL))


def table() -> str:
    """The table of encodings, from the registry: one for each group."""
    from fastpe.encodings import catalogue, registry

    blocks = []
    for title, members in catalogue.grouped(map(catalogue.entry, registry.built_in())).items():
        rows = [f"## {title}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        for each in members:
            record = registry.get(each.key)
            slots = ", ".join(f"`{slot}`" for slot in each.slots) or "nothing"
            file = registry.file_of(each.key)
            cells = (
                f"[`{each.key}`]({file.parent.name}/{file.name})", each.summary, slots, each.learned, _needs(each),
                record.direction,
                each.beyond, "-" if each.outcome == "none" else each.outcome, record.source,
            )  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _needs(each: "Entry") -> str:
    """What it needs and a plain sequence does not have; in brackets what a run takes by default."""
    if each.needs is None:
        return "-"
    default = f"`{each.needs.default}`" if each.needs.what == "digits" else "a sequence will do"
    return f"{each.needs.what} ({default})" if each.needs.default else each.needs.what


def write() -> None:
    """Put the table where it stands among the encodings."""
    text = LIST.read_text()
    found = TABLE.search(text)
    assert found is not None, f"{LIST} has lost the marks around its table"
    LIST.write_text(text[: found.start(1)] + table() + text[found.end(1) :])


def check() -> None:
    for name, commands in blocks().items():
        if name != "test":
            print(f"--- README: {name}", flush=True)
            path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"  # a reader has it activated by now
            subprocess.run(["bash", "-euxc", commands], cwd=ROOT, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    if sys.argv[1:] == ["test"]:
        print(blocks()["test"])
    elif sys.argv[1:] == ["check"]:
        check()
    elif sys.argv[1:] == ["table"]:
        print(table())
    elif sys.argv[1:] == ["write"]:
        write()
    else:
        sys.exit(__doc__)
