"""Compare two methods on one task as a paper would: several seeds, intervals, feasibility before return.

python examples/compare_methods.py [FOLDER]
"""

import sys
from pathlib import Path

import awavo
from awavo.results.compare import compare_runs
from awavo.results.report import write_report
from awavo.results.tables import comparison_markdown

METHODS = ("orpo-dr", "trpo-lagrangian")


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/compared")
    runs = []
    for method in METHODS:
        run = awavo.train(awavo.configure("navigation", method, steps=60_000, seeds=3), out / method)
        run.evaluate(20)
        runs.append(run.data)
    # Runs that keep their limits come first, whatever the others' returns.
    print(comparison_markdown(compare_runs(runs)))
    print("report page:", write_report(runs, out / "report.html", title="Two methods"))


if __name__ == "__main__":
    main()
