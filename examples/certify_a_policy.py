"""Certify a frozen policy: bounds on its costs from fresh episodes, which a second command computes again.

python examples/certify_a_policy.py [RUN_FOLDER]
"""

import sys

import awavo


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/certified"
    run = awavo.train(awavo.configure("cartpole", "orpo-dr", steps=100_000, seeds=2), out)
    record = run.certify(episodes=300, delta=0.05)
    for certificate in record["certificates"]:
        print(f"{certificate['verdict']:<10} {certificate['claim']}")
    differences = run.recheck()
    print("computed again:", "the same" if not any(differences.values()) else differences)


if __name__ == "__main__":
    main()
