"""Ask why a policy acts as it does: which of the things it sees moved its decisions, and by how much.

python examples/explain_decisions.py [RUN_FOLDER]
"""

import sys

import awavo
from awavo.runs.explain import explain_run_folder


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/explained"
    run = awavo.train(awavo.configure("cartpole", "orpo-dr", steps=100_000), out)
    # Episodes with a push halfway; explanation.html in the run folder shows them.
    for line in explain_run_folder(run, episodes=2).lines:
        print(line)


if __name__ == "__main__":
    main()
