"""Flights whose truth is known, to see whether the influence of wind and obstacles is what it should be.

    PYTHONPATH=src python benchmarks/explain/flights.py [--seeds 8] [--parts additivity checks ...]
        [--out benchmarks/explain/results/flights.json]

Episodes of 500 decisions (10 s at 50 Hz), of 300 with a factor hidden or shuffled, of 160 where only RS 02 counts.
RS 02 are the decisions within half a second of passing that mark. Means come with 95% intervals by bootstrap over
seeds. Parts are written as they finish; parts that are not asked for are kept. With --cache, flights are kept in a
folder and a stopped run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
from flown import CONFIG, flight, flown
from scipy.stats import spearmanr

from awavo.control.flight_model import PWM_MIN, motor_pwm
from awavo.control.flight_planner import flight_planner
from awavo.explain.magnitude import debiased_magnitude, signed_root
from awavo.explain.measures import influences
from awavo.explain.simulation import at_mark, decide_from, flight_params
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.quadrotor.flight import mark_time
from awavo.tasks.quadrotor.references import lissajous
from awavo.tasks.quadrotor.wind import zone_share
from awavo.training.compilation import enable_cache

# Every flight starts within an eighth of the reference and has passed RS 02 by then.
PASS_STEPS = 160
# The wind blows across the push of the first obstacle in the task as it is; in the second scene along it.
SCENES = {
    "task as it is": {},
    "wind along a stronger push": {"wind_x": -4.0, "wind_y": 0.0, "proximity_force": 4.0},
}
PAPER = {"FT1": 0.20, "FT2": 0.18, "FT3": 0.40}


@jax.jit
def _magnitudes(inputs, params):
    """Moments of the wind's part at chosen decisions: squared magnitudes in N and us, mean shifts in N and us."""
    model = flight_planner(params, lissajous, CONFIG).model

    def one(x):
        decision = decide_from(x, params, CONFIG)
        p, q = decision.weights[3], decision.weights[2]
        thrust = model.added_thrust(decision.candidates)
        pwm = motor_pwm(decision.commands, x.body.rates[:, None], params).T
        key = jax.random.fold_in(x.key, 3)
        newton, newton_plain = debiased_magnitude(key, thrust, p, q)
        micro, micro_plain = debiased_magnitude(key, pwm, p, q)
        run = jnp.linalg.norm(p @ pwm - PWM_MIN)
        return newton, newton_plain, micro, micro_plain, (p - q) @ thrust, (p - q) @ pwm, run

    return jax.lax.map(one, inputs)


def measures(trace, params) -> dict[str, np.ndarray]:
    """All measures of the wind (L0) at RS 02, averaged over its decisions."""
    chosen = np.flatnonzero(np.asarray(at_mark(trace.inputs.time, params)))
    inputs = jax.tree.map(lambda x: x[chosen], trace.inputs)
    newton, newton_plain, micro, micro_plain, push, motor, run = map(np.asarray, _magnitudes(inputs, params))
    square = float(signed_root(jnp.asarray(np.mean(np.sign(newton) * newton**2))))
    squares = float(signed_root(jnp.asarray(np.mean(np.sign(micro) * micro**2))))
    return {
        "probability of influence": np.asarray(trace.influence)[chosen, 0].mean(),
        "Shapley share of it": np.asarray(trace.shares)[chosen, 0].mean(),
        "transport, N": square,
        "transport, N, plug-in": newton_plain.mean(),
        "transport, us": squares,
        "transport, us, plug-in": micro_plain.mean(),
        "transport, us over |u - idle|": squares / run.mean(),
        "mean shift of thrust, N": push.mean(0),
        "mean shift of motors, us": motor.mean(0),
        "true force, N": np.linalg.norm(np.asarray(trace.true_force)[chosen].mean(0)),
    }


def interval(values, statistic=np.mean) -> dict:
    """The statistic over seeds with a 95% bootstrap interval."""
    values, rng = np.asarray(values), np.random.default_rng(0)
    drawn = [statistic(values[rng.integers(0, len(values), len(values))], 0) for _ in range(2000)]
    return {"value": float(statistic(values, 0)), "interval": np.quantile(drawn, [0.025, 0.975]).tolist()}


def additivity(seeds, folder) -> dict:
    found: dict = {"paper": PAPER}
    for scene, physics in SCENES.items():
        rows = {}
        for task in ("FT1", "FT2", "FT3"):
            params = flight_params(task, **physics)
            rows[task] = []
            for seed in seeds:
                trace = flight(seed, params, steps=PASS_STEPS)
                assert bool(trace.alive.all())
                rows[task].append(measures(trace, params))
            print(scene, task, flush=True)
        table = {}
        for name in rows["FT1"][0]:
            values = {task: np.array([row[name] for row in rows[task]]) for task in rows}
            if values["FT1"].ndim == 1:
                parts = dict(values)
                gap = values["FT3"] - values["FT1"] - values["FT2"]
            else:  # a vector: its length, and the length of what does not add up
                parts = {task: np.linalg.norm(v, axis=1) for task, v in values.items()}
                gap = np.linalg.norm(values["FT3"] - values["FT1"] - values["FT2"], axis=1)
            line = {task: interval(v) for task, v in parts.items()}
            line["sum"] = interval(parts["FT1"] + parts["FT2"])
            line["gap"] = interval(gap)
            ratio = np.stack([gap, parts["FT3"]], 1)
            line["gap_share"] = interval(ratio, lambda x, axis: x[:, 0].mean() / x[:, 1].mean())
            line["vector"] = values["FT1"].ndim > 1
            table[name] = line
        pi = {task: np.array([row["probability of influence"] for row in rows[task]]) for task in rows}
        either = 1 - (1 - pi["FT1"]) * (1 - pi["FT2"])
        table["probability of influence"]["noisy_or"] = interval(either)
        table["probability of influence"]["noisy_or_gap"] = interval(pi["FT3"] - either)
        found[scene] = {"physics": physics, "table": table}
    return found


def rank_area(on, off) -> float:
    """Area under the ROC curve: the probability that a step with wind scores above one without."""
    both = np.concatenate([on, off])
    ranks = both.argsort().argsort() + 1.0
    for value in np.unique(both[np.isin(both, on) & np.isin(both, off)]):
        ranks[both == value] = ranks[both == value].mean()
    return float((ranks[: len(on)].sum() - len(on) * (len(on) + 1) / 2) / (len(on) * len(off)))


def checks(seeds, folder) -> dict:
    setups = {"FT0": {}, "FT1": {}, "FT2": {}, "FT3": {}, "FT2 no force": {"proximity_force": 0.0}}
    traces = {}
    for name, physics in setups.items():
        traces[name] = [flown(folder, name[:3], seed, **physics) for seed in seeds]
        print(name, flush=True)
    wind = {k: np.stack([t["influence"][:, 0] for t in v]) for k, v in traces.items()}
    every = [t for v in traces.values() for t in v]
    params = flight_params("FT3")
    centre = lissajous(mark_time(2, params), params).position

    def in_zone(trace):
        return np.asarray(jax.vmap(lambda p: zone_share(p, centre, params))(trace["position"])) > 0.5

    areas = {}
    for on, off in (("FT1", "FT0"), ("FT3", "FT2")):
        inside, outside = (np.stack([in_zone(t) for t in traces[name]]) for name in (on, off))
        areas[f"{on} against {off}"] = {
            "in the fan's zone": rank_area(wind[on][inside], wind[off][outside]),
            "everywhere": rank_area(wind[on].ravel(), wind[off].ravel()),
        }
    correlation = {}
    for task in ("FT1", "FT3"):
        sizes = [np.linalg.norm(t["true_force"], axis=1) for t in traces[task]]
        correlation[task] = interval([spearmanr(w, s)[0] for w, s in zip(wind[task], sizes, strict=True)])
    return {
        "calm FT0": interval(wind["FT0"].mean(1)),
        "calm FT0, 95% of decisions below": float(np.quantile(wind["FT0"], 0.95)),
        "no force, FT2 without push": interval(wind["FT2 no force"].mean(1)),
        **{task: interval(wind[task].mean(1)) for task in ("FT1", "FT2", "FT3")},
        **{f"obstacles in {k}": interval([t["influence"][:, 1].mean() for t in traces[k]]) for k in ("FT2", "FT3")},
        "largest influence of a dummy (obstacles in FT0, FT1)": max(
            float(t["influence"][:, 1].max()) for k in ("FT0", "FT1") for t in traces[k]
        ),
        "area under ROC, wind on or off": areas,
        "largest error of the Shapley sum": max(float(np.abs(t["shares"].sum(1) - t["together"]).max()) for t in every),
        "largest excess over the triangle inequality": max(
            float((t["together"] - t["influence"][:, 0] - t["rest"]).max()) for t in every
        ),
        "rank correlation with the force": correlation,
        "effective sample size": {k: float(np.mean([t["effective_size"] for t in v])) for k, v in traces.items()},
        "collisions": int(sum(not t["alive"].all() for t in every)),
        "rms error, m": {k: interval([np.sqrt(np.mean(t["error"] ** 2)) for t in v]) for k, v in traces.items()},
        "least clearance, m": {k: min(float(t["clearance"].min()) for t in v) for k, v in traces.items()},
    }


def shuffled(seeds, folder) -> dict:
    """Give each decision the force estimate of another moment of its flight: the link to the true force must go."""
    found = {}
    for task in ("FT1", "FT3"):
        mixed = []
        for seed in seeds:
            trace = flown(folder, task, seed, shuffled=True, steps=300)
            mixed.append(spearmanr(trace["influence"][:, 0], np.linalg.norm(trace["true_force"], axis=1))[0])
        found[task] = interval(mixed)
        print(task, found[task], flush=True)
    return found


def hiding(seeds, folder, window: int = 25) -> dict:
    """Hide a factor from the planner, and see whether the flight gets worse where its influence was large."""

    def blocks(x):
        return x[: len(x) // window * window].reshape(-1, window).mean(1)

    def shortfall(trace):
        return np.maximum(CONFIG.clearance_margin - trace["clearance"], 0.0)

    def ahead(x, count=50):
        return np.array([x[i : i + count].mean() for i in range(len(x))])

    found = {}
    cases = (("wind", "FT1", 2, 0), ("wind", "FT3", 2, 0), ("obstacles", "FT2", 1, 1), ("obstacles", "FT3", 1, 1))
    for factor, task, seen, index in cases:
        influence, harm, per_flight = [], [], []
        for seed in seeds:
            known, blind = (flown(folder, task, seed, s, steps=300) for s in (3, seen))
            # The planner looks a second ahead: what it does about an obstacle now shows by then.
            lost = ahead(shortfall(blind) - shortfall(known))
            worse = blind["error"] - known["error"] if factor == "wind" else lost
            both = known["alive"] & blind["alive"]
            influence.append(blocks(known["influence"][both, index]))
            harm.append(blocks(worse[both]))
            per_flight.append(spearmanr(influence[-1], harm[-1])[0])
        found[f"{factor} in {task}"] = {
            "harm": "tracking error, m" if factor == "wind" else "margin lost within a second, m",
            "rank correlation": float(spearmanr(np.concatenate(influence), np.concatenate(harm))[0]),
            "per flight": interval(per_flight),
            "mean harm": float(np.concatenate(harm).mean()),
            "window_s": window * 0.02,
        }
        print(factor, task, found[f"{factor} in {task}"], flush=True)
    return found


def monotone(seeds, folder) -> dict:
    rows = {}
    for speed in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        physics = {"wind_y": speed, "gust_sigma": 0.15 * speed, "gust_peak": 0.5 * speed}
        values = []
        for seed in seeds[:4]:
            trace = flown(folder, "FT1", seed, steps=PASS_STEPS, **physics)
            chosen = np.asarray(at_mark(trace["time"], flight_params("FT1")))
            values.append(trace["influence"][chosen, 0].mean())
        rows[f"{speed:g} m/s"] = interval(values)
        print(speed, rows[f"{speed:g} m/s"], flush=True)
    means = [row["value"] for row in rows.values()]
    return {"influence at RS 02": rows, "monotone": bool(np.all(np.diff(means) > 0))}


def stability(seeds, folder) -> dict:
    """The same decisions of FT1 at RS 02, asked again with other temperatures and pool sizes."""
    found = {}
    params = flight_params("FT1")
    traces = [flight(seed, params, steps=PASS_STEPS) for seed in seeds[:3]]
    settings = [CONFIG._replace(temperature=t) for t in (0.0125, 0.025, 0.05, 0.1, 0.2)]
    settings += [CONFIG._replace(num_candidates=n) for n in (256, 1024, 2048)]
    for config in settings:

        @jax.jit
        def ask(inputs, config=config):
            def one(x):
                decision = decide_from(x, params, config)
                return influences(decision.weights)[0], decision.effective_size

            return jax.lax.map(one, inputs)

        values, sizes = [], []
        for trace in traces:
            chosen = np.flatnonzero(np.asarray(at_mark(trace.inputs.time, params)))[::5]
            pi, size = ask(jax.tree.map(lambda x, c=chosen: x[c], trace.inputs))
            values.append(float(pi.mean()))
            sizes.append(float(size.mean()))
        name = f"temperature {config.temperature:g}, {config.num_candidates} candidates"
        found[name] = {**interval(values), "effective size": float(np.mean(sizes))}
        print(name, found[name], flush=True)
    return found


PARTS = {
    "additivity": additivity, "checks": checks, "shuffled": shuffled, "hiding": hiding, "monotone": monotone,
    "stability": stability,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), decisions=list(PARTS))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    enable_cache()
    seeds = list(range(options.seeds))
    results = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    made |= {"seeds": seeds, "planner": CONFIG._asdict()}
    for name in options.parts:
        results[name] = {"results": PARTS[name](seeds, options.cache), **made, "load": os.getloadavg()}
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n")
    if not options.out:
        print(json.dumps({name: results[name]["results"] for name in options.parts}, indent=1))


if __name__ == "__main__":
    main()
