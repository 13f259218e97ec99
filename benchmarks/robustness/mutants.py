"""Take the fix of each attack out of the source, one at a time, and see that its tests fail.

    PYTHONPATH=src python benchmarks/robustness/mutants.py [NAME ...] [--out benchmarks/robustness/results/mutants.json]

Works on copies; an attack that no test notices any more ends the command with exit code 1. With names, the rows of the
others stay as they are in the result; every row has the commit it was made at.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import attacks_on_files
import attacks_on_input
from mutation_check import run_all

from awavo.provenance import stamp

ATTACKS = {**attacks_on_files.ATTACKS, **attacks_on_input.ATTACKS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in ATTACKS]:
        parser.error(f"no attack is named '{unknown[0]}'")
    made = stamp()
    rows = [{**row, "commit": made["commit"]} for row in run_all(ATTACKS, args.names)]
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(args.out.read_text())["rows"] if args.out.is_file() else []
        found = {row["mutant"]: row for row in [*before, *rows]}
        result = {"rows": [found[name] for name in ATTACKS if name in found], **made}
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(any(not row["caught"] for row in rows))


if __name__ == "__main__":
    main()
