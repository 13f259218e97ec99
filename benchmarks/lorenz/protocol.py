"""The protocol's scores of `awavo infer` on held-out seeds (100 and above), settings as shipped.

    python benchmarks/lorenz/protocol.py --states 50 --seeds 20 [--first 100] [--forcing infer] [--regime D]

`--start truth` begins at the truth and only polishes: what a solver that never takes a wrong mode would reach.
Every state size is compiled once; times are without compilation, wall and processor.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
from record import summarise, write

from awavo.assimilation.assimilate import Posterior, assimilate, first_state
from awavo.assimilation.engine import Settings, System, compile_engine, make_data, make_engine
from awavo.assimilation.modes import SearchSettings, default_slots
from awavo.results.trajectory_scores import Z90, score
from awavo.tasks.lorenz96 import REGIMES, lorenz96_system, twin_experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--forcing", choices=("known", "infer"), default="known")
    parser.add_argument("--regime", choices=tuple(REGIMES), default="G")
    parser.add_argument("--rounds", type=int, default=SearchSettings().rounds)
    parser.add_argument("--start", choices=("observations", "truth"), default="observations")
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    oracle = options.start == "truth"
    infer_theta, regime = options.forcing == "infer", REGIMES[options.regime]
    search = SearchSettings(
        rounds=0 if oracle else options.rounds, slots=default_slots(options.states, jax.default_backend())
    )
    settings = Settings(infer_theta=infer_theta, search=search)
    system = System(**lorenz96_system(options.states, regime.steps, 7.0 if infer_theta else 8.0))
    engine, compile_s, rows = make_engine(system, regime.num_times, settings), None, []
    for seed in range(options.first, options.first + options.seeds):
        twin = twin_experiment(options.states, regime=options.regime, seed=seed)
        data = make_data(system, twin.observed, regime.noise, settings)
        if compile_s is None:
            engine, compile_s = compile_engine(engine, data, system.theta)
        state = first_state(data, system.theta)
        if oracle:
            state = state._replace(x=jnp.asarray(twin.truth, state.x.dtype), stage=len(settings.anneal))
        began, processor, notes = time.perf_counter(), time.process_time(), []
        item = None
        for item, text in assimilate(engine, data, state):  # noqa: B007
            notes += [text] if text.startswith("modes") else []
        assert isinstance(item, Posterior)
        times = {"solve_s": time.perf_counter() - began, "cpu_s": time.process_time() - processor}
        row = {"seed": seed, **times, **score(item.mean, item.std, twin.truth, ~twin.seen, item.draws), "modes": notes}
        if infer_theta:
            half = Z90 * float(np.sqrt(item.theta_cov[0, 0]))
            row |= {"forcing": float(item.theta[0]), "half90": half, "inside90": bool(abs(item.theta[0] - 8.0) <= half)}
        rows.append(row)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    print(f"compile {compile_s:.1f} s", summarise(rows))
    if not options.dry:
        name = f"awavo_{options.states}_{options.regime}" + "_forcing" * infer_theta + "_oracle" * oracle
        print(
            write(
                name,
                "started at the truth" if oracle else "awavo infer",
                options.states,
                rows,
                compile_s=compile_s,
                load=os.getloadavg(),
            )
        )


if __name__ == "__main__":
    main()
