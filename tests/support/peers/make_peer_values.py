"""Make tests/data/peer_values.npz and bench/results/peers.md: what other packages give, for machines without them.

    python tests/support/peers/make_peer_values.py

Asks every peer of `peer_cases.py` that is installed, and keeps what is stored of the others: no environment has all of
them at once. Then compares all that is stored, and writes the table.

What is stored was made in three environments, Python 3.11, PyTorch 2.13 for the CPU: one with the extra `peers` and
keras-hub, torchtune, torchscale, nemo-toolkit 1.23 and unimol-tools; one with transformers 4.57; one with tensor2tensor
on TensorFlow 2.21. Of torchscale, keras-hub, nemo-toolkit, unimol-tools and tensor2tensor only the modules named in the
cases are needed, unchanged: they can be installed without their dependencies, and what else their packages import on
the way (tensorflow_addons, say) may be an empty stand-in.
"""

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement
from peer_case import compare
from peer_cases import CASES, WITHOUT, missing

ROOT = Path(__file__).resolve().parents[3]
PATH = ROOT / "tests" / "data" / "peer_values.npz"
TABLE = ROOT / "bench" / "results" / "peers.md"
VERSIONS = "versions"

HEAD = """# Equality with other packages

Made by `tests/support/peers/make_peer_values.py`. Both sides get the same numbers. Our values are those of the float64
reference or of the compiled float64 fill, whichever differs more. "Off" is the difference between our value and the
exact value (mpmath, 40 digits; or the authors' formula in fractions) at the position of the worst difference, if the
two are not equal to float64 rounding. Where the peer computes something else, it is the worst of 17 positions.

| encoding | package | what | worst difference | off | reason, or rearrangement |
|---|---|---|---|---|---|
"""


def stored():
    """What is stored, and the versions that gave it."""
    if not PATH.exists():
        return {}, {}
    with np.load(PATH, allow_pickle=False) as file:
        values = dict(file)
    return values, json.loads(str(values.pop(VERSIONS)))


def asked(case):
    """What the peer gives, or None where it is not to be had here."""
    if missing(case):
        return None
    try:
        importlib.import_module(case.module)
    except ImportError:
        return None
    return np.ascontiguousarray(case.theirs())


def figure(number):
    """One digit, or a word for none."""
    return "equal" if number == 0 else f"{number:.0e}"


def table(values, versions):
    """The table in Markdown."""
    lines = []
    for case in CASES:
        found = compare(case, values[case.name])
        off = "" if found.own is None else figure(found.own).replace("equal", "0")
        what = f"`{case.of}`" + f", {case.note.replace('_', ' ')}" * bool(case.note)
        cells = (f"`{case.scheme}`", versions[case.name], what, figure(found.worst), off, case.why)
        lines.append("| " + " | ".join(cells) + " |")
    without = [f"- `{scheme}`: {reason}." for scheme, reason in WITHOUT.items()]
    return HEAD + "\n".join(lines) + "\n\nEncodings without a package to compare with:\n\n" + "\n".join(without) + "\n"


def main():
    """Ask the peers, store, compare, write."""
    values, versions = stored()
    kept = {case.name for case in CASES}
    values, versions = ({k: v for k, v in each.items() if k in kept} for each in (values, versions))
    for case in CASES:
        theirs = asked(case)
        if theirs is not None:
            name = Requirement(case.peer).name
            values[case.name], versions[case.name] = theirs, f"{name} {metadata.version(name)}"
        state = "stored" if theirs is not None else "kept" if case.name in values else "MISSING"
        sys.stdout.write(f"{case.name}: {state}\n")
    np.savez_compressed(PATH, **values, **{VERSIONS: np.array(json.dumps(versions, sort_keys=True))})
    if kept <= set(values):
        TABLE.write_text(table(values, versions))
    sys.stdout.write(f"{PATH}: {PATH.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
