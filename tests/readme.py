"""The README's commands, run as they stand there.

    python tests/readme.py test      print the test command
    python tests/readme.py check     run every other block of shell commands, in order, stopping at the first failure
    python tests/readme.py table     print the table of encodings, as it should stand in the README

A block of shell commands follows a line `<!-- commands: NAME -->`; test_readme.py sees to it that none goes without.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TABLE = re.compile(r"<!-- table of encodings -->\n(.*?)\n<!-- end of table -->", re.DOTALL)


def blocks() -> dict[str, str]:
    """The shell commands by the name of their block."""
    return dict(re.findall(r"<!-- commands: (\w+) -->\n```sh\n(.*?)```", README.read_text(), re.DOTALL))


def table() -> str:
    """The table of encodings, from the registry."""
    from fastpe.encoding import get, list_encodings, page

    rows = ["| key | slot | learned | past the training length | what it is | source |", "|---|---|---|---|---|---|"]
    for key in list_encodings():
        encoding = get(key)
        learned = "yes" if encoding.pull else "no"
        if encoding.pull and "learned" in encoding.options:
            learned = "optional"
        what = " ".join(page(key).strip().split("\n\n")[0].split())
        slots = ", ".join(f"`{slot}`" for slot in encoding.slots) or "none"
        rows.append(f"| `{key}` | {slots} | {learned} | {encoding.beyond} | {what} | {encoding.source} |")
    return "\n".join(rows)


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
    else:
        sys.exit(__doc__)
