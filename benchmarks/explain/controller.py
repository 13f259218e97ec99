"""The controller in use against the planner that can say why, asked about the same decisions.

    PYTHONPATH=src python benchmarks/explain/controller.py [--seeds 4] [--steps 300]
        [--out benchmarks/explain/results/controller.json]

The controller (control/flight_planner.py) flies; every fourth decision is put to it and to the explained planner: same
state, belief, obstacles, key and remembered detours. Compared are the probabilities of influence and the parts of the
motors' signals. The cost of asking the controller is timed against one of its planning steps.
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
from scipy.stats import spearmanr

from awavo.control.flight_planner import DEFAULT, flight_planner, start_detours
from awavo.explain.asking import flight_factor
from awavo.explain.controller import ask_controller
from awavo.explain.flight import DecisionInputs, decide_from, flight_params, flight_steps, start_force_belief
from awavo.explain.flight_model import motor_pwm
from awavo.explain.flight_planner import FACTORS, ExplainedConfig
from awavo.explain.measures import influences, mean_parts
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.quadrotor.references import lissajous
from awavo.training.compilation import enable_cache

EVERY = 4
CONFIG = ExplainedConfig()
ASKED = [flight_factor(name) for name in FACTORS]


def fly_controller(seed, params, steps):
    """Inputs of every decision of a flight under the controller, its tracking error and clearance."""
    reset, take_in, advance = flight_steps()
    decide, key = flight_planner(params, lissajous), jax.random.key(seed)

    def one(carry, t):
        state, detours, belief = carry
        plan_key, step_key = jax.random.split(jax.random.fold_in(key, t))
        belief = take_in(state, belief, params)
        inputs = DecisionInputs(plan_key, state.body, state.time, belief, detours, state.forest)
        made = decide(*inputs)
        state, (error, gap, _, hit) = advance(step_key, state, made.action, params)
        return (state, made.detours, belief), (inputs, error, gap, hit)

    start = reset(jax.random.fold_in(key, 2**20), params)
    return jax.lax.scan(one, (start, start_detours(DEFAULT), start_force_belief()), jnp.arange(steps))[1]


def ask_both(inputs, params):
    """Influences and motor parts of one decision: the controller's, the explained planner's."""
    own = ask_controller(inputs, ASKED, params)
    braces = jnp.zeros((inputs.particles.shape[0], 3))
    other = inputs._replace(particles=jnp.concatenate([inputs.particles, braces], 1))
    choice = decide_from(other, params, CONFIG)
    parts = mean_parts(choice.weights, motor_pwm(choice.commands, inputs.body.rates[:, None], params).T)
    return own.influence, influences(choice.weights), own.parts[1:], parts[1:]


def correlation(a, b, ranks: bool = True) -> float | None:
    """Correlation (of ranks), or None where one side does not change by more than rounding."""
    if min(np.std(a), np.std(b)) < 1e-3:
        return None
    return float(spearmanr(a, b)[0] if ranks else np.corrcoef(a, b)[0, 1])


def compare(rows) -> dict:
    own, other, own_parts, other_parts = (np.concatenate(column) for column in zip(*rows, strict=True))
    found = {}
    for i, name in enumerate(FACTORS):
        a, b = own[:, i], other[:, i]
        p, q = own_parts[:, i].ravel(), other_parts[:, i].ravel()
        found[name] = {
            "mean influence": {"controller": float(a.mean()), "explained planner": float(b.mean())},
            "mean absolute difference": float(np.abs(a - b).mean()),
            "rank correlation": correlation(a, b),
            "motor parts, us": {
                "controller, rms": float(np.sqrt(np.mean(p**2))),
                "explained planner, rms": float(np.sqrt(np.mean(q**2))),
                "mean absolute difference": float(np.abs(p - q).mean()),
                "correlation": correlation(p, q, ranks=False),
            },
            "decisions": len(a),
        }
    return found


def timed(inputs, params, repeats: int = 60) -> dict:
    """One planning step of the controller, and asking it about both factors, in ms."""
    plan = jax.jit(lambda x, p: flight_planner(p, lissajous)(*x).action)
    ask = jax.jit(lambda x, p: ask_controller(x, ASKED, p))
    times: dict[str, list[float]] = {"plan": [], "ask": []}
    for _ in range(repeats):
        for name, program in (("plan", plan), ("ask", ask)):
            began = time.perf_counter()
            jax.block_until_ready(program(inputs, params))
            times[name].append(1e3 * (time.perf_counter() - began))
    plan_ms, ask_ms = (float(np.median(times[name][3:])) for name in ("plan", "ask"))
    # Asking decides in all four coalitions, the one that was flown among them.
    extra = (ask_ms - plan_ms) / plan_ms / len(FACTORS)
    return {"plan_ms": plan_ms, "ask_ms": ask_ms, "extra per factor, in planning steps": extra}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    play = jax.jit(lambda seed, params: fly_controller(seed, params, options.steps))
    both = jax.jit(lambda inputs, params: jax.lax.map(lambda x: ask_both(x, params), inputs))
    results, inputs = {}, None
    for task in ("FT1", "FT2", "FT3"):
        params, rows, errors, gaps, hits = flight_params(task), [], [], [], 0
        for seed in range(options.seeds):
            inputs, error, gap, hit = play(seed, params)
            chosen = jax.tree.map(lambda x: x[::EVERY], inputs)
            rows.append([np.asarray(x) for x in both(chosen, params)])
            errors.append(np.asarray(error))
            gaps.append(float(gap.min()))
            hits += int(hit.any())
        rms = float(np.sqrt(np.mean(np.square(errors))))
        flight = {"rms error, m": rms, "least clearance, m": min(gaps), "collisions": hits}
        results[task] = {"flights of the controller": flight, **compare(rows)}
        print(task, json.dumps(results[task], indent=1), flush=True)
    results["time"] = timed(jax.tree.map(lambda x: x[20], inputs), flight_params("FT3"))
    print(results["time"], flush=True)
    made |= {"seeds": list(range(options.seeds)), "steps": options.steps, "every": EVERY, "load": os.getloadavg()}
    made |= {"planner": DEFAULT._asdict(), "explained": {**CONFIG._asdict(), "model": CONFIG.model._asdict()}}
    if options.out:
        options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
