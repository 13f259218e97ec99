"""Result files made up for tests, in the format that jobs write."""

import json

import numpy as np

LIMITS = {
    "cartpole": {"position": 30.0, "angle": 10.0},
    "acrobot": {"link1": 50.0, "link2": 50.0},
    "drone": {"hazards": 1.0},
    "hopper-velocity": {"velocity": 25.0},
}

HEAD = {"command": "made up", "commit": "abc", "device": {"kind": "cpu", "cpu": "made up", "cores": 2}}


def write_results(folder, *results):
    """Write results as job files below a folder."""
    for number, result in enumerate(results):
        path = folder / "jobs" / f"{result['job']['family']}-n{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result))


def summary(returns, costs, limits, env_steps=0):
    def figure(values):
        return {"value": float(np.mean(values)), "low": float(np.min(values)), "high": float(np.max(values)),
                "per_seed": [float(v) for v in values]}  # fmt: skip

    return {
        "return": figure(returns),
        "costs": {name: {**figure(np.full(len(returns), costs)), "limit": limit} for name, limit in limits.items()},
        "length": figure(returns),
        "feasible_seeds": 0,
        "seeds": len(returns),
        "episodes_per_seed": 10,
        "slack": 0.0,
        "env_steps": env_steps,
    }


def learning_result(task, algo, returns, cost=1.0, *, steps=1000, seeds=None, path=(0.2, 0.5, 1.0), **job):
    """A method that reaches `path` of its final returns at equally spaced checkpoints."""
    returns, limits = np.asarray(returns, float), LIMITS[task]
    points = [
        {**summary(share * returns, cost, limits, round(steps * (k + 1) / len(path))), "wall_s": k + 1.0}
        for k, share in enumerate(path)
    ]
    curve = [
        {"env_steps": p["env_steps"], "return": p["return"], "costs": list(p["costs"].values()), "wall_s": p["wall_s"]}
        for p in points
    ]
    row = {
        "algo": algo, "task": task, "seeds": len(returns), "seed_numbers": list(seeds or range(len(returns))),
        "env_steps_per_seed": steps, "compile_s": 1.0, "train_wall_s": 3.0, "curve": curve, "checkpoints": points,
        "evaluation": {"greedy": summary(returns, cost, limits)},
    }  # fmt: skip
    about = {"figure": "learning", "label": f"{task}-{algo}", "family": f"{task}-{algo}-x", "variant": "", **job}
    return {**HEAD, "job": about, "rows": [row]}


def result(figure, label, row, family=None):
    """A result file of another figure."""
    return {**HEAD, "job": {"figure": figure, "label": label, "family": family or f"{label}-x"}, "rows": [row]}
