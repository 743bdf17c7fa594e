"""Compare a run of the benchmarks with the saved baseline.

    pytest bench --benchmark-json=new.json
    python bench/compare.py new.json             compare with bench/baseline.json; exit status 1 if something is slower
    python bench/compare.py new.json --save      save the run as the baseline

Times on shared machines vary by tens of percent. A benchmark counts as slower only if its *fastest* new run is slower
than its *slowest* old run. Compare only on the CPU on which the baseline was made. The names of both CPUs are printed.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).with_name("baseline.json")


def read(path: Path) -> dict[str, Any]:
    """The CPU, and the fastest, median and slowest seconds of each benchmark, from a file of pytest-benchmark."""
    report = json.loads(path.read_text())
    return {
        "cpu": report["machine_info"]["cpu"].get("brand_raw", "unknown"),
        "python": report["machine_info"]["python_version"],
        "seconds": {
            bench["fullname"].removeprefix("bench/"): [bench["stats"][key] for key in ("min", "median", "max")]
            for bench in report["benchmarks"]
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--save", action="store_true", help="make this run the baseline")
    arguments = parser.parse_args()
    new = read(arguments.report)
    if arguments.save:
        BASELINE.write_text(json.dumps(new, indent=1) + "\n")
        print(f"saved {len(new['seconds'])} benchmarks to {BASELINE.name}")
        return 0
    old = json.loads(BASELINE.read_text())
    print(f"old: {old['cpu']}\nnew: {new['cpu']}\n{'median':>9}  old/new medians")
    slower = 0
    for name, (fastest, median, _) in sorted(new["seconds"].items()):
        if name not in old["seconds"]:
            print(f"{median * 1e6:9.1f} us  new        {name}")
            continue
        _, old_median, old_slowest = old["seconds"][name]
        worse = fastest > old_slowest
        slower += worse
        print(f"{median * 1e6:9.1f} us  {old_median / median:5.2f}x {'SLOWER' if worse else '':7}{name}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
