"""Is the interval of the forcing as wide as its errors? Seeds below 100, started at the truth, several model noises q.

    python benchmarks/lorenz/forcing.py --states 250 --seeds 30 --noise 0.01 0.002

Started at the truth no mode can be wrong, so that errors are those of the posterior alone.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
from record import RESULTS

from awavo.assimilation.assimilate import Posterior, assimilate, first_state
from awavo.assimilation.engine import Settings, System, compile_engine, make_data, make_engine
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.lorenz96 import REGIMES, lorenz96_system, twin_experiment

TRUTH = 8.0


def errors(states: int, seeds: range, noise: float) -> list[dict[str, float]]:
    """Error and claimed deviation of each seed's forcing."""
    regime = REGIMES["G"]
    search = SearchSettings(rounds=0, slots=default_slots(states, jax.default_backend()))
    settings = Settings(infer_theta=True, search=search, model_noise=noise)
    system = System(**lorenz96_system(states, regime.steps, TRUTH))
    engine, compiled, rows = make_engine(system, regime.num_times, settings), False, []
    for seed in seeds:
        twin = twin_experiment(states, regime="G", seed=seed)
        data = make_data(system, twin.observed, regime.noise, settings)
        if not compiled:
            engine, compiled = compile_engine(engine, data, system.theta)[0], True
        state = first_state(data, system.theta)
        state = state._replace(x=jnp.asarray(twin.truth, state.x.dtype), stage=len(settings.anneal))
        posterior = [item for item, _ in assimilate(engine, data, state)][-1]
        assert isinstance(posterior, Posterior)
        rows.append(
            {"seed": seed, "error": float(posterior.theta[0]) - TRUTH, "std": float(np.sqrt(posterior.theta_cov[0, 0]))}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.01])
    options = parser.parse_args()
    found = {}
    for noise in options.noise:
        rows = errors(options.states, range(options.seeds), noise)
        error, std = (np.array([row[k] for row in rows]) for k in ("error", "std"))
        ratio = {"rms": np.sqrt(np.mean(error**2)), "std": std.mean(), "z2": np.mean((error / std) ** 2)}
        ratio = {name: round(float(value), 5) for name, value in ratio.items()}
        found[str(noise)] = {**ratio, "inside90": int(np.sum(np.abs(error) <= 1.645 * std)), "rows": rows}
        print(options.states, noise, ratio, found[str(noise)]["inside90"], "of", len(rows), flush=True)
    made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
    path = RESULTS / f"forcing_{options.states}_truth.json"
    path.write_text(json.dumps({"states": options.states, "noises": found, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
