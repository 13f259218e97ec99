"""A trial on the tuning seeds: the learner with some of its constants changed, measured by measure.py and kept.

    python benchmarks/learner/variants.py "the entropy's weight begins large and falls slowly" \
        algorithms.orpo_dr.ENTROPY_FIRST=1 algorithms.orpo_dr.ENTROPY_RATE=0.01 -- \
        --algo orpo-dr --task halfcheetah-velocity --limits 25 --steps 50000 --episodes 20 --seeds 6

First what the variant is, in words. Constants are named by their module within awavo; without any it is the learner as
it stands. What follows `--` are measure.py's arguments. Seeds are 100 to 109 alone: nothing is chosen on others. Every
row goes into results/tuning.jsonl (of measure.py: `--out`) as soon as it is there.
"""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import measure

from awavo.config import parse_value
from awavo.provenance import device_info, source_commit

KEPT = Path(__file__).parent / "results" / "tuning.jsonl"
TUNING_SEEDS = range(100, 110)


def change(constant: str) -> tuple[str, Any]:
    """Set `module.NAME=value`, there and wherever the name was imported to; returns both."""
    place, _, text = constant.partition("=")
    module, _, name = place.rpartition(".")
    home, value = importlib.import_module(f"awavo.{module}"), parse_value(text)
    if not name.isupper() or not hasattr(home, name):
        sys.exit(f"awavo.{module} has no constant {name}.")
    old = getattr(home, name)
    for key, other in list(sys.modules.items()):
        if key.startswith("awavo.") and getattr(other, name, None) is old:
            setattr(other, name, value)
    return place, value


def told(words: list[str]) -> str:
    """The command that makes the row again, without where it was put."""
    at = words.index("--out") if "--out" in words else len(words)
    return shlex.join(["python", "benchmarks/learner/variants.py", *words[:at], *words[at + 2 :]])


def main() -> None:
    words = sys.argv[1:]
    if "--" not in words[1:]:
        sys.exit("variants.py WHAT [MODULE.NAME=VALUE ...] -- arguments of measure.py")
    (what, *constants), args = words[: words.index("--")], measure.read(words[words.index("--") + 1 :])
    seeds = measure.seeds_of(args)
    if not set(seeds) <= set(TUNING_SEEDS):
        sys.exit("a variant is tried on seeds 100 to 109 alone.")
    head = {
        "command": told(words), "commit": source_commit(), "device": device_info(), "variant": what,
        "task": f"{args.algo}:{args.task}", "settings": dict(map(change, constants)), "seeds": seeds,
        "episodes": args.episodes,
    }  # fmt: skip
    for row in measure.rows_of(args):
        with (args.out or KEPT).open("a") as file:
            file.write(json.dumps(head | row) + "\n")


if __name__ == "__main__":
    main()
