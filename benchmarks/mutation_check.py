"""Break the source in known ways and see that some test fails each time.

    python benchmarks/mutation_check.py [NAME ...] [--out benchmarks/results/mutation_check.json]

Works on a copy; a mutant that no test catches ends the command with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_KILOBYTES = 6 * 2**20
CACHE = ROOT / ".pytest_cache" / "xla"  # that of the tests


class Mutant(NamedTuple):
    """A text to replace in a source file, and the tests that must notice."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = {
    "joined steps without a force": Mutant(
        "assimilation/trajectories.py",
        "push.at[:-1, ..., 0].add(force)",
        "push",
        "tests/assimilation/test_trajectories.py",
    ),
    "the length of this rollout's episodes alone": Mutant(
        "algorithms/episodes.py",
        "(fresh * length + (kept - fresh) * previous) / jnp.maximum(kept, 1)",
        "length",
        "tests/algorithms/test_estimation.py",
    ),
    "an excess counted again without news": Mutant(
        "algorithms/trpo_lagrangian.py",
        "choose(rollout.done.any(), (excess, 1), (state.controller.excess, 0))",
        "(excess, 1)",
        "tests/algorithms/test_trpo_lagrangian.py",
    ),
    "a projection that gives up on opposed limits": Mutant(
        "algorithms/trust_region.py",
        "jnp.where(jnp.any(kept), jnp.where(kept, distance, jnp.inf), outside)",
        "jnp.where(kept, distance, jnp.inf)",
        "tests/algorithms/test_pcpo.py",
    ),
    "plans that count as greedy decisions": Mutant(
        "algorithms/orpo_dr.py",
        "dim > 0 and not has_planner(config)",
        "dim > 0",
        "tests/algorithms/test_sizes.py",
    ),
    "a last lattice cut short": Mutant(
        "transport/slices.py",
        "_lattice(num_slices - whole * block, dim)",
        "_lattice(block, dim)[: num_slices - whole * block]",
        "tests/transport/test_slices.py",
    ),
    "a price that takes all digits": Mutant(
        "transport/partial.py",
        "jnp.minimum(penalty, lax.stop_gradient(power_cost(widest, order)))",
        "penalty + 0 * widest",
        "tests/transport/test_variants.py",
    ),
    "an interval from hardly more than one slice": Mutant(
        "transport/energy.py",
        "jnp.sum(share**2) * ENOUGH <= 1",
        "True",
        "tests/transport/test_variants.py",
    ),
    "steps of the ascent that are not shortened": Mutant(
        "transport/ascent.py",
        "jnp.minimum(2 * length, step), length / 2)",
        "step, step)",
        "tests/transport/test_ascent.py",
    ),
    "an upper end below zero": Mutant(
        "transport/programs.py",
        "jnp.maximum(value + half, 0)",
        "value + half",
        "tests/transport/test_population.py",
    ),
    "even angles with all degrees of freedom": Mutant(
        "transport/intervals.py",
        "circle and block > 1 and len(sizes) > 2",
        "False",
        "tests/transport/test_slices.py",
    ),
    "joined steps without stiffness": Mutant(
        "assimilation/trajectories.py",
        "HELD * jnp.maximum(stiff, 0.0)",
        "0.0",
        "tests/assimilation/test_trajectories.py",
    ),
    "what is felt is looked for on the wrong side": Mutant(
        "assimilation/trajectories.py",
        "jnp.roll(numbers, -shifts[i]",
        "jnp.roll(numbers, shifts[i]",
        "tests/assimilation/test_trajectories.py",
    ),
    "joined steps that swing are kept": Mutant(
        "assimilation/assimilate.py",
        "if swings.mean() > CALM:\n        return apart",
        "pass",
        "tests/assimilation/test_assimilation.py",
    ),
    "the last step of patches alone moves the mean": Mutant(
        "assimilation/assimilate.py",
        "for a in (x, end.variance, end.draws)",
        "for a in (x + end.move, end.variance, end.draws)",
        "tests/assimilation/test_assimilation.py",
    ),
    "sites not believed hide a doubt elsewhere": Mutant(
        "assimilation/local.py",
        "if rest.max() > doubt:",
        "if rest.max() > doubt and not notes:",
        "tests/assimilation/test_infer.py",
    ),
    "a site whose spread was not finite is believed": Mutant(
        "assimilation/assimilate.py",
        "believed & finite",
        "believed",
        "tests/assimilation/test_assimilation.py",
    ),
    "many segments get the most starts": Mutant(
        "assimilation/assimilate.py",
        "if len(firsts) > FEW_SEGMENTS:",
        "if False:",
        "tests/assimilation/test_assimilation.py",
    ),
    "a few regions are searched again once": Mutant(
        "assimilation/assimilate.py",
        "if 0 < _regions(~believed) <= FEW_REGIONS",
        "if False",
        "tests/assimilation/test_assimilation.py",
    ),
    "gradients of monomials in their first variable alone": Mutant(
        "transport/defining.py",
        "below[..., -count:, :] += part * variables[..., i : i + 1, :]",
        "pass",
        "tests/transport/test_variants.py",
    ),
    "levels of 29 bits": Mutant(
        "transport/host_cells.py",
        "np.left_shift(levels, 1, out=merged)",
        "np.left_shift(levels >> 23 << 23, 1, out=merged)",
        "tests/transport/test_by_numpy.py",
    ),
    "the index stays in the sorted numbers' order": Mutant(
        "transport/host_cells.py",
        "bits |= np.arange(num)",
        "bits |= np.arange(num) // 2",
        "tests/transport/test_by_numpy.py",
    ),
    "sites believed wherever they are": Mutant(
        "assimilation/modes.py",
        "return np.asarray(_around(wrong.astype(float), window) < 0.5)",
        "return np.ones(len(cost), bool)",
        "tests/assimilation/test_infer.py",
    ),
    "intervals of sites not believed stay narrow": Mutant(
        "assimilation/assimilate.py",
        "np.where(believed, std, np.maximum(std, prior))",
        "np.where(believed, std, std)",
        "tests/assimilation/test_assimilation.py",
    ),
    "a filter that does not see shocks": Mutant(
        "assimilation/tracking.py",
        "level, extra = levels[best[0]], levels[best[0]] ** 2 * shapes[best[1]]",
        "level, extra = levels[0], 0.0 * shapes[best[1]]",
        "tests/assimilation/test_tracking.py",
    ),
    "a filter linearised at the mean": Mutant(
        "assimilation/tracking.py",
        "slope = (weights * nodes) @ seen / std",
        "slope = jax.jvp(see, (mean,), (jnp.ones_like(mean),))[1]",
        "tests/assimilation/test_tracking.py",
    ),
    "a smoother that forgets the taper's windows": Mutant(
        "assimilation/tracking.py",
        "gain @ windows.local(spread, chosen) @ jnp.swapaxes(gain, 1, 2)",
        "gain @ windows.local(later.band, chosen) @ jnp.swapaxes(gain, 1, 2)",
        "tests/assimilation/test_tracking.py",
    ),
    "actor gradient cut": Mutant(
        "algorithms/actor_critic.py",
        "dist = policy(obs)",
        "dist = jax.lax.stop_gradient(policy(obs))",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "terminated and truncated swapped in the replay": Mutant(
        "algorithms/replay.py",
        "rollout.next_obs, rollout.terminated)",
        "rollout.next_obs, rollout.truncated)",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "terminated and truncated swapped in the environment": Mutant(
        "tasks/base.py",
        "Timestep(obs, out.reward, out.costs, terminated, truncated, out.obs)",
        "Timestep(obs, out.reward, out.costs, truncated, terminated, out.obs)",
        "tests/training/test_loop.py tests/tasks",
    ),
    "PPO without its clip": Mutant(
        "algorithms/ppo_lagrangian.py",
        "return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)",
        "return ratio * advantage",
        "tests/algorithms/test_ppo_lagrangian.py",
    ),
    "PPO's cost advantage with the wrong sign": Mutant(
        "algorithms/ppo_lagrangian.py",
        "batch.reward_advantage - batch.cost_advantages @ state.multipliers",
        "batch.reward_advantage + batch.cost_advantages @ state.multipliers",
        "tests/algorithms/test_ppo_lagrangian.py",
    ),
    "the higher of the soft twins": Mutant(
        "algorithms/soft_actor_critic.py",
        "stays * (values.min(0) - alpha * log_prob)",
        "stays * (values.max(0) - alpha * log_prob)",
        "tests/algorithms/test_soft_actor_critic.py",
    ),
    "soft actor paid for costs": Mutant(
        "algorithms/soft_actor_critic.py",
        "alpha * log_prob - value + costs @ price",
        "alpha * log_prob - value - costs @ price",
        "tests/algorithms/test_soft_actor_critic.py",
    ),
    "PID multipliers forget how many episodes ended": Mutant(
        "algorithms/sac_lagrangian.py",
        "relative_excess(totals, limits), config, ended)",
        "relative_excess(totals, limits), config)",
        "tests/algorithms/test_soft_actor_critic.py",
    ),
    "multipliers that do not wait for their warm-up": Mutant(
        "algorithms/sac_lagrangian.py",
        "(ended > 0) & (steps >= config.multiplier_warmup)",
        "ended > 0",
        "tests/algorithms/test_soft_actor_critic.py",
    ),
    "averages counted anew in each rollout": Mutant(
        "algorithms/soft_actor_critic.py",
        "numbers = (memory.added // rows - 1) * num_updates + jnp.arange(num_updates)",
        "numbers = jnp.arange(num_updates)",
        "tests/algorithms/test_soft_actor_critic.py",
    ),
    "actions counted from 0 handed to whoever counts otherwise": Mutant(
        "tasks/spaces.py",
        "return actions + space.dtype.type(space.start)",
        "return actions",
        "tests/runs/test_api.py",
    ),
    "a training loop that is left saves nothing": Mutant(
        "runs/train.py",
        "            training.leave()\n            raise\n",
        "            raise\n",
        "tests/training/test_interruption.py",
    ),
    "an interrupted training passes for a whole one": Mutant(
        "runs/api.py",
        'if last is not None and last.phase == "interrupted":',
        'if last is not None and last.phase == "never":',
        "tests/training/test_interruption.py",
    ),
    "CAL's lower bound": Mutant(
        "algorithms/cal.py",
        "return members.mean(0) + conservatism * std",
        "return members.mean(0) - conservatism * std",
        "tests/algorithms/test_cal.py",
    ),
    "CAL's price below zero": Mutant(
        "algorithms/cal.py",
        "jnp.maximum(multipliers + config.penalty * excess, 0.0)",
        "(multipliers + config.penalty * excess)",
        "tests/algorithms/test_cal.py",
    ),
    "limit compared with a discounted sum": Mutant(
        "training/rollout.py",
        "totals.returns + reward, totals.costs + costs,",
        "totals.returns + reward, totals.costs + 0.99**totals.length[:, None] * costs,",
        "tests/training/test_loop.py",
    ),
    "limit compared with a mean per step": Mutant(
        "algorithms/constraints.py",
        "    return steps @ rate\n\n\ndef cost_rates",
        "    return steps @ rate / horizon\n\n\ndef cost_rates",
        "tests/algorithms/test_constraints.py",
    ),
    "estimate that waits for episodes": Mutant(
        "algorithms/constraints.py",
        "    return steps @ rate\n\n\ndef cost_rates",
        "    return profile.total / jnp.maximum(profile.episodes, 1.0)\n\n\ndef cost_rates",
        "tests/algorithms/test_constraints.py",
    ),
    "scale from one step's range": Mutant(
        "algorithms/orpo_dr.py",
        "low, high = choose(jnp.all(state.ranges.high > state.ranges.low), state.ranges, reachable)",
        "low, high = reachable",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "cost likelihood that does not saturate": Mutant(
        "inference/operators.py",
        "return share * (best - jax.nn.softplus((g - low) / (share * (high - low))))",
        "return (low - g) / (high - low)",
        "tests/inference/test_operators.py",
    ),
    "cost likelihood that bends over its whole range": Mutant(
        "inference/operators.py",
        "return jnp.where(low > 0, jnp.clip(low / (high - low), BEND_FLOOR, 1.0), 1.0)",
        "return jnp.ones_like(low / (high - low))",
        "tests/inference/test_operators.py",
    ),
    "candidates whose noise does not last": Mutant(
        "inference/sequences.py",
        "BOX_NOISE * candidate_noise(noise_key, (horizon",
        "BOX_NOISE * jax.random.normal(noise_key, (horizon",
        "tests/inference/test_planner.py",
    ),
    "a patient weight that falls slowly where nothing is spent": Mutant(
        "algorithms/constraints.py",
        "fall = jnp.maximum(integral, 1.0) * (1.0 + (patience - 1.0) * jnp.abs(error))",
        "fall = jnp.maximum(integral, 1.0)",
        "tests/algorithms/test_constraints.py",
    ),
    "tails heard from the start": Mutant(
        "algorithms/actor_critic.py",
        "unheard_at_first(critic.net, slice(spec.obs_dim, width))",
        "critic.net",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "weights without patience": Mutant(
        "algorithms/sizes.py",
        "return 1.0 if is_small(spec) else 5.0",
        "return 1.0",
        "tests/algorithms/test_sizes.py tests/algorithms/test_constraints.py",
    ),
    "thresholds that stay where they began": Mutant(
        "networks/normalizer.py",
        "thresholds=stats.thresholds + rate * (points - stats.thresholds)",
        "thresholds=stats.thresholds",
        "tests/networks/test_networks.py",
    ),
    "all cells along the whole cloud's slices": Mutant(
        "inference/cells.py",
        "ascended = ascend(jnp.repeat(masses, looked, 0), rows.reshape(count * looked, -1))",
        "ascended = ascend(jnp.repeat(masses * 0 + weights, looked, 0), rows.reshape(count * looked, -1))",
        "tests/inference/test_cells.py",
    ),
    "units that do not follow the returns": Mutant(
        "algorithms/units.py",
        "unit = jnp.where(measured > 0, measured, 1.0)",
        "unit = jnp.ones_like(measured)",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "a weight that outlasts the violation": Mutant(
        "algorithms/constraints.py",
        "pace = jnp.where(error < 0, fall, 1.0)",
        "pace = 1.0",
        "tests/algorithms/test_constraints.py",
    ),
    "noise drawn anew at every step": Mutant(
        "algorithms/exploration.py",
        "noise = jnp.where(begun > 0, kept * before + jnp.sqrt(1.0 - kept**2) * fresh, fresh)",
        "noise = fresh",
        "tests/algorithms/test_exploration.py",
    ),
    "what the greedy environments cost is not counted": Mutant(
        "algorithms/orpo_dr.py",
        "            estimate = with_greedy_excess(estimate, state.greedy_profile, spec.horizon)\n",
        "            pass\n",
        "tests/algorithms/test_exploration.py",
    ),
    "larger tasks begin with the young policy alone": Mutant(
        "algorithms/orpo_dr.py",
        "explores_first, outlived = not is_small(spec),",
        "explores_first, outlived = False,",
        "tests/algorithms/test_exploration.py",
    ),
    "random actions never end": Mutant(
        "algorithms/orpo_dr.py",
        "begins = (state.replay.added < config.warmup_steps) & ",
        "begins = ",
        "tests/algorithms/test_exploration.py",
    ),
    "to fall keeps a limit": Mutant(
        "algorithms/orpo_dr.py",
        "        if not outlived:\n",
        "        if True:\n",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "the letter's critics see costs after an end": Mutant(
        "algorithms/orpo_dr.py",
        'not is_small(spec) and config.rectify == "posterior"',
        "not is_small(spec)",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "the mean cost of a step is that of the ages alone": Mutant(
        "algorithms/constraints.py",
        "return steps @ rate / jnp.maximum(steps.sum(), 1.0)",
        "return rate.mean(0)",
        "tests/algorithms/test_constraints.py",
    ),
    "greedy episodes are never cut": Mutant(
        "algorithms/exploration.py",
        "jnp.broadcast_to(jnp.where(age >= horizon, jnp.inf, age), (num_envs,))",
        "jnp.where(greedy_environments(num_envs) | (age >= horizon), jnp.inf, age)",
        "tests/algorithms/test_exploration.py",
    ),
    "cut episodes stand in the tables": Mutant(
        "training/rollout.py",
        "rollout._replace(truncated=truncated), whole",
        "rollout._replace(truncated=truncated), rollout._replace(truncated=truncated).done",
        "tests/training/test_cuts.py",
    ),
    "cut episodes are not truncated": Mutant(
        "training/host_loop.py",
        "        truncated[..., -1, :] |= cut\n",
        "",
        "tests/training/test_cuts.py",
    ),
    "cut episodes count as whole ones": Mutant(
        "algorithms/constraints.py",
        "done = (rollout.terminated | (rollout.done & (rollout.episode_length >= horizon))).astype(jnp.float32)",
        "done = rollout.done.astype(jnp.float32)",
        "tests/algorithms/test_constraints.py",
    ),
    "the mean of two ways round": Mutant(
        "inference/sequences.py",
        "return to_box(space, near @ q[:, 0] / near.sum())",
        "return to_box(space, q[:, 0].mean(0))",
        "tests/inference/test_planner.py",
    ),
    "plans that start from the step before": Mutant(
        "inference/sequences.py",
        "flat, distance = target[resample(key, weights, num)], jnp.zeros(())",
        "flat, distance = q.reshape(num, -1), jnp.zeros(())",
        "tests/inference/test_planner.py",
    ),
    "final observation lost at reset": Mutant(
        "training/rollout.py",
        "out.terminated, out.truncated, out.final_obs,",
        "out.terminated, out.truncated, out.obs,",
        "tests/training/test_loop.py",
    ),
    "cost critics never trained": Mutant(
        "networks/quantiles.py",
        "error = jax.lax.stop_gradient(targets)",
        "quantiles = quantiles.at[:, 1:].set(0.0)\n    error = jax.lax.stop_gradient(targets)",
        "tests/networks/test_quantiles.py",
    ),
    "seeds share their key": Mutant(
        "training/loop.py",
        "jax.random.split(jax.random.key(seed), 3)",
        "jax.random.split(jax.random.key(0 * seed), 3)",
        "tests/training/test_loop.py",
    ),
    "checkpoint not verified": Mutant(
        "training/checkpoint.py",
        "if stated != _digest(arrays, metadata):",
        "if False:",
        "tests/training/test_checkpoint.py",
    ),
    "environment not saved with the state": Mutant(
        "training/loop.py",
        "self._states = [jax.tree.map(jnp.asarray, state) for state in states]",
        "self._states = [jax.tree.map(jnp.asarray, s)._replace(envs=o.envs) for s, o in zip(states, self._states)]",
        "tests/training/test_loop.py",
    ),
}


class Outcome(NamedTuple):
    """Whether all tests named for a mutant passed, and the first that failed or what pytest said last."""

    survived: bool
    told: str


def survives(mutant: Mutant, most_seconds: float = 1_800.0) -> Outcome:
    """Run the tests named for a mutant on a broken copy. Compiled programs are shared, by their content."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        path = copy / "src" / "awavo" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"'{mutant.old}' stands {text.count(mutant.old)} times in {mutant.file}, expected once")
        path.write_text(text.replace(mutant.old, mutant.new))
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "AWAVO_CACHE_DIR": str(CACHE)}
        # Without its fix a file of a few bytes may ask for terabytes.
        bound = ["sh", "-c", f'ulimit -d {MOST_KILOBYTES}; exec "$@"', "sh"]
        options = ["-x", "-q", "-p", "no:cacheprovider"]
        command = [*bound, sys.executable, "-m", "pytest", *options, *shlex.split(mutant.tests)]
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=most_seconds
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Outcome(False, f"not ended within {most_seconds:g} s")
    if done.returncode == 4:
        raise SystemExit(f"no test is named {mutant.tests}: {done.stderr.strip()[-300:]}")
    said = done.stdout.strip().splitlines()
    failures = [line for line in said if line.startswith(("FAILED", "ERROR"))]
    told = failures[0].split(" - ")[0] if failures else said[-1] if said else f"exit code {done.returncode}"
    # A test that was skipped notices nothing; one that ended its process did.
    return Outcome(done.returncode in (0, 5), told.removeprefix("FAILED ").removeprefix("ERROR "))


def run_all(mutants: Mapping[str, Mutant], names: Sequence[str]) -> list[dict[str, object]]:
    """A row for each mutant, printed as it comes."""
    rows = []
    for name in names or mutants:
        survived, told = survives(mutants[name])
        rows.append({"mutant": name, "file": mutants[name].file, "caught": not survived, "by": told})
        print(f"{'SURVIVED' if survived else 'caught  '}  {name}: {told}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = run_all(MUTANTS, args.names)
    if args.out:
        from awavo.provenance import source_commit

        args.out.write_text(
            json.dumps({"command": "python " + " ".join(sys.argv), "commit": source_commit(), "rows": rows}, indent=1)
            + "\n"
        )
    raise SystemExit(any(not row["caught"] for row in rows))


if __name__ == "__main__":
    main()
