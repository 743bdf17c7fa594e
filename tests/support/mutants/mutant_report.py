"""The report of a mutation run: its figures, and its survivors, each with the reason why it survives."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

JUDGED = Path(__file__).with_name("judged.json")
"""`identity` of a survivor -> "equivalent: why no test can tell" or "open: why it survives"."""


def read(results: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    lines = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    return {f"{line['path']}:{line['at']}": line for line in lines}


def identity(line: dict[str, Any]) -> str:
    return f"{line['path']} {line['function']}: {line['before']} -> {line['after']}"


def judged(line: dict[str, Any]) -> str:
    return json.loads(JUDGED.read_text()).get(identity(line), "") if JUDGED.exists() else ""


def is_open(line: dict[str, Any]) -> bool:
    """Whether a mutant survived, and not because it is none."""
    return line["end"] == "survived" and not judged(line).startswith("equivalent")


def markdown(done: dict[str, dict[str, Any]], seed: int) -> str:
    lines = sorted(done.values(), key=lambda line: (line["path"], line["line"]))
    groups = {
        group: [line for line in lines if line["group"] == group] for group in {line["group"]: 0 for line in lines}
    }
    rows = [_row(group, members) for group, members in sorted(groups.items())] + [_row("**all**", lines)]
    how = Counter(_fall(line["by"]) for line in lines if line["end"] == "killed")
    equal = [line for line in lines if judged(line).startswith("equivalent")]
    left = [line for line in lines if is_open(line)]
    parts = [
        HEAD.format(seed=seed, count=len(lines)),
        "\n".join(["| group | mutants | equivalent | killed | survived | killed of those not equivalent |",
                   "|---|---|---|---|---|---|", *rows]),
        "Killed by: " + ", ".join(f"{name} {number}" for name, number in how.most_common()) + ".",
        "## Survivors\n\n" + ("\n".join(map(_item, left)) or "None."),
        "## Equivalent\n\nNo test can tell these from the original.\n\n" + "\n".join(map(_item, equal)),
    ]  # fmt: skip
    return "\n\n".join(parts).rstrip() + "\n"


def selections(default: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]]) -> str:
    """A table of what the default selection finds. rest: results of the other tests, for its survivors."""
    open_ = {key: line for key, line in default.items() if not judged(line).startswith("equivalent")}
    rows = []
    for group in (*sorted({line["group"] for line in open_.values()}), "**all**"):
        members = {key: line for key, line in open_.items() if group in (line["group"], "**all**")}
        first = sum(line["end"] == "killed" for line in members.values())
        later = sum(rest.get(key, line)["end"] == "killed" for key, line in members.items()) - first
        share = f"{100 * first / (first + later):.0f} %" if first + later else "-"
        rows.append(f"| {group} | {len(members)} | {first} | {later} | {len(members) - first - later} | {share} |")
    return "\n".join([
        "| group | mutants | default selection | only `--full` | no test | share of the default selection |",
        "|---|---|---|---|---|---|", *rows,
    ])  # fmt: skip


def _row(name: str, lines: list[dict[str, Any]]) -> str:
    killed = sum(line["end"] == "killed" for line in lines)
    left = sum(is_open(line) for line in lines)
    share = f"{100 * killed / (killed + left):.1f} %" if killed + left else "-"
    return f"| {name} | {len(lines)} | {len(lines) - killed - left} | {killed} | {left} | {share} |"


def _fall(by: str) -> str:
    if by.endswith("(no end)"):
        return "time limit"
    if by.endswith(")") and "(SIG" in by:
        return "crash"
    return "import error" if "(exit" in by or "::" not in by else "failed test"


def _item(line: dict[str, Any]) -> str:
    why = judged(line).partition(": ")[2] or "not yet examined"
    place = f"`{line['path']}`, {line['function'] or 'top'}"
    return f"- {place}: `{_short(line['before'])}` became `{_short(line['after'])}`. {why}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 140 else text[:139] + "…"


HEAD = """# Mutants

Small random mistakes were put into the code, one at a time. Each mutant was run against the tests that call the changed
function: a mutant is killed if one of them fails. Seed {seed}, {count} mutants: lines were drawn at random within each
group, then a kind of mistake. A mutant that crashes, hangs or takes all memory counts as killed.
`tests/support/mutants/mutants.py` explains how it works.

```sh
export PYTHONPATH=tests/support/mutants
FASTPE_RECORD=calls.jsonl python -m pytest -p mutant_record      # records which tests call which function; slow
python tests/support/mutants/mutants.py --record calls.jsonl --results mutants.jsonl   # hours
python tests/support/mutants/mutants.py --record calls.jsonl --results mutants.jsonl --report bench/results/mutants.md
```"""
