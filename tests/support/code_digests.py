"""Digests of the machine code in the compile cache, to see which compiled functions a change of the source changed.

    FASTPE_CACHE_DIR=before python -m pytest            # or any other call that compiles what is to be compared
    python tests/support/code_digests.py before > before.txt
    FASTPE_CACHE_DIR=after python -m pytest             # after the edit
    python tests/support/code_digests.py after | diff before.txt -

Each line is a compiled function and the first digits of the SHA-256 of its instructions, one line for each kind of
arguments. Names, paths and constants in memory do not count. Digests are those of one CPU type and one set of versions.
`digests.py` compares results instead.
"""

import hashlib
import sys
from pathlib import Path

from llvmlite import binding

_ELF = b"\x7fELF"


def digests(folder: Path) -> list[str]:
    """Of every file of a cache folder: the function and the digest of its instructions, sorted."""
    lines = []
    for path in (folder / "code").glob("*.code"):
        stored = path.read_bytes()
        _, magic, rest = stored.partition(_ELF)
        if not magic:
            raise ValueError(f"{path} holds no ELF object: only machine code for Linux can be compared")
        found = hashlib.sha256()
        for section in binding.ObjectFileRef.from_data(magic + rest).sections():
            if section.is_text():
                found.update(section.data())
        name = path.name.rsplit("-", 2)[0]
        lines.append(f"{name} {found.hexdigest()[:16]}")
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(digests(Path(sys.argv[1]))))
