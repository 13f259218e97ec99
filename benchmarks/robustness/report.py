"""Tables of the fuzz, the soak and the mutants for the documentation.

    python benchmarks/robustness/report.py

Reads benchmarks/robustness/results/*.json and writes docs/robustness_results.md; a missing file is a table less.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "docs" / "robustness_results.md"


def source(result: dict) -> str:
    device = result["device"]
    return f"`{result['command']}`, commit {result['commit']}, {device['cores']} cores, {device['cpu']}."


def fuzz_table(result: dict) -> list[str]:
    at_once = "1 process" if result["jobs"] == 1 else f"{result['jobs']} processes"
    lines = [
        f"**Fuzz**, seed {result['seed']}: {result['cases']:,} cases in {result['wall_s'] / 60:.1f} minutes with "
        f"{at_once} at a time; {result['tracebacks_or_faults']} tracebacks or faults, {result['hangs']} hangs, "
        f"{result['crashes']} crashes, {result['over_2_GB']} over 2 GB, {result['written_on_refusal']} written on "
        f"refusal; the slowest took {result['slowest_s']:.0f} s.",
        "", "| kind | cases | done | negative | refused | bad |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for kind, row in result["kinds"].items():
        codes = [row["exit_codes"].get(code, 0) for code in ("0", "1", "2")]
        lines.append(f"| {kind} | {row['cases']} | {' | '.join(map(str, codes))} | {row['bad']} |")
    return [*lines, "", source(result), ""]


def soak_table(result: dict) -> list[str]:
    used, growth = result["memory_after_each_turn_mb"], result["growth_mb_a_turn"]
    flat = "" if growth is None else f"; over the last two thirds it changed by {growth:+.1f} MB a turn"
    lines = [
        f"**Soak**, {result['wall_s'] / 60:.0f} minutes: {sum(result['rounds'].values())} trainings broken and taken "
        f"up again, {len(result['failures'])} failures. Memory was {used[0]} MB after the first turn through all "
        f"faults and {used[-1]} MB after the last{flat}.",
        "", "| fault | rounds | what was said |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {fault} | {count} | {result['said'][fault]} |" for fault, count in result["rounds"].items()]
    return [*lines, "", source(result), ""]


def mutants_table(result: dict) -> list[str]:
    rows = result["rows"]
    noticed = sum(row["caught"] for row in rows)
    lines = [
        f"**Fixes taken out**, one at a time: of {len(rows)} mutants the tests noticed {noticed}.",
        "", "| attack | fix in | first test that failed |", "|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        by = f"`{row['by'].split('::')[-1]}`" if row["caught"] else "**none**"
        lines.append(f"| {row['mutant']} | `{row['file']}` | {by} |")
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    return [*lines, "", source({**result, "command": "mutants.py", "commit": commits}), ""]


def main() -> None:
    lines: list[str] = []
    for name, table in (("fuzz", fuzz_table), ("soak", soak_table), ("mutants", mutants_table)):
        path = HERE / "results" / f"{name}.json"
        if path.is_file():
            lines += table(json.loads(path.read_text()))
    TARGET.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
