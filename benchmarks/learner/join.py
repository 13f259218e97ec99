"""Join the results of one task whose seeds ran in several programs.

    python benchmarks/learner/join.py A.json B.json --out benchmarks/safety/results/car-goal1.json

A row's steps are the fewest of the programs (they stop by time), its seconds the most; `steps_of_programs` has each.
The courses of the estimates are left out: each program wrote down its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def joined(parts: list[dict]) -> dict:
    """One result of all seeds."""
    first = parts[0]
    same = ("commit", "device", "algo", "task", "episodes")
    for name in same:
        if any(part[name] != first[name] for part in parts):
            raise SystemExit(f"{name} differs: {[part[name] for part in parts]}")
    if len({len(part["rows"]) for part in parts}) > 1:
        raise SystemExit(f"numbers of rows differ: {[len(part['rows']) for part in parts]}")
    rows = []
    for together in zip(*(part["rows"] for part in parts), strict=True):
        steps = [row["steps"] for row in together]
        row = {"steps": min(steps), "seconds": max(row["seconds"] for row in together)}
        row |= {} if len(set(steps)) == 1 else {"steps_of_programs": steps}
        rows.append(row | {name: [x for row in together for x in row[name]] for name in ("returns", "costs")})
    head = {"command": "; ".join(part["command"] for part in parts)}
    facts = {"seeds": [seed for part in parts for seed in part["seeds"]], "rows": rows}
    return head | {name: first[name] for name in same} | facts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.write_text(json.dumps(joined([json.loads(path.read_text()) for path in args.parts])) + "\n")


if __name__ == "__main__":
    main()
