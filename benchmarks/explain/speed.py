"""What explaining costs beside planning, and whether both hold 50 Hz.

    PYTHONPATH=src taskset -c 0 python benchmarks/explain/speed.py [--out benchmarks/explain/results/speed.json]

One core (taskset). A planning step runs from the state on the host to the action on the host. Explaining adds the
rollout without wind, all four posteriors, influences, Shapley shares, motor parts; the sliced Wasserstein magnitude is
computed afterwards from the record and timed apart (--magnitude). Planning and explaining alternate, so that both meet
the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.belief import start_belief, take_in
from awavo.control.flight_model import motor_pwm
from awavo.control.flight_planner import FACTORS, DecisionInputs, flight_planner, start_particles
from awavo.control.planner_config import PlannerConfig
from awavo.explain.magnitude import debiased_magnitude
from awavo.explain.measures import mean_parts, measure_weights
from awavo.explain.simulation import decide_from, flight_params, flight_steps
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.quadrotor.references import lissajous
from awavo.training.compilation import enable_cache


def programs(config: PlannerConfig):
    def plan(inputs, params):
        return flight_planner(params, lissajous, config).plan(*inputs)

    def both(inputs, params):
        decision = decide_from(inputs, params, config)
        motors = mean_parts(decision.weights, motor_pwm(decision.commands, inputs.body.rates[:, None], params).T)
        return decision.action, decision.particles, measure_weights(decision.weights), motors

    def magnitude(inputs, params):
        decision = decide_from(inputs, params, config)
        pwm = motor_pwm(decision.commands, inputs.body.rates[:, None], params).T
        return debiased_magnitude(inputs.key, pwm, decision.weights[3], decision.weights[2])

    return {"plan": jax.jit(plan), "plan and explain": jax.jit(both), "plan and magnitude": jax.jit(magnitude)}


def time_all(made, inputs, params, repeats: int) -> dict[str, np.ndarray]:
    times: dict[str, list[float]] = {name: [] for name in made}
    for r in range(repeats):
        fresh = jax.device_get(inputs._replace(key=None))._replace(key=jax.random.fold_in(inputs.key, r))
        for name, program in made.items():
            began = time.perf_counter()
            jax.device_get(program(fresh, params))
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: np.array(t[5:]) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=150)
    parser.add_argument("--magnitude", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    params = flight_params("FT3")
    state = flight_steps()[0](jax.random.key(0), params)
    belief = take_in(start_belief(), state, params)
    belief = belief._replace(mean=jnp.array([0.0, 1.2, 0.0, 0.0, 0.0]))
    results = {}
    for num in options.sizes:
        config = PlannerConfig(num_candidates=num)
        inputs = DecisionInputs(
            jax.random.key(1), state.body, state.time, belief, start_particles(config), state.forest
        )
        made = programs(config)
        if not options.magnitude:
            del made["plan and magnitude"]
        found = time_all(made, inputs, params, options.repeats)
        row = {name: {f"p{q}": float(np.percentile(t, q)) for q in (50, 95, 99)} for name, t in found.items()}
        base, whole = np.median(found["plan"]), np.median(found["plan and explain"])
        row["explaining over planning, per factor"] = float((whole - base) / base / len(FACTORS))
        row["explaining over planning, all factors"] = float((whole - base) / base)
        row["share of 20 ms periods kept"] = float((found["plan and explain"] < 20).mean())
        results[num] = row
        print(num, json.dumps(row), flush=True)
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    made |= {"cores_used": len(os.sched_getaffinity(0)), "load": os.getloadavg(), "repeats": options.repeats}
    if options.out:
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
