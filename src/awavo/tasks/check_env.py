"""Check an environment before training on it: every finding says what was expected, what was seen and what to do.

Gymnasium ids, factories and instances go through their spaces, `reset` and a random rollout; functional environments
through `jax.eval_shape` and a compiled rollout. Nothing is printed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from awavo.checks import all_finite
from awavo.errors import AwavoError, MissingExtraError, UnknownNameError, raised
from awavo.registry import HOST_TASKS, TASKS, check_option, make_task
from awavo.tasks.check_episodes import check_cost_series, check_ends, check_spread, check_start_infos, check_totals
from awavo.tasks.check_rules import Finding, Report, Trace, observe, watch_step
from awavo.tasks.contract import RESET, own_attribute, own_list, reset_problem, space_problem, wrapped_limit
from awavo.tasks.cost_functions import CostFn, apply_cost_fn, find_info, takes_info
from awavo.tasks.gymnasium_host import HostTaskEnv
from awavo.tasks.host_core import find_costs, name_costs
from awavo.tasks.making import check_gymnasium_id, find_source, make_gymnasium
from awavo.tasks.six_values import accept_six_values
from awavo.tasks.spaces import action_spec, check_observation_space
from awavo.types import Env, Fields

__all__ = ["Finding", "check_env", "check_functional"]

SEED = 7
REMEDIES = {
    "reset": "Make reset() run at any time, with a seed and without one.",
    "step": "Make step() run for any action of action_space.",
}


def check_env(
    target: str | Env | gym.Env | Callable[[], gym.Env],
    *,
    cost_fn: CostFn | None = None,
    cost_limits: Sequence[float] | None = None,
    steps: int = 1000,
    env_options: Mapping[str, object] | None = None,
) -> list[Finding]:
    """Check a task name, a Gymnasium id, an environment, or a factory of one; an empty list means nothing was found.

    A name that nothing has is no finding but an error, as in training.
    With `cost_limits` it is checked that there is one for each cost, and whether random actions exceed any.
    """
    named = target if isinstance(target, str) else ""
    options: Fields = dict(env_options or {})
    if named in TASKS or named in HOST_TASKS:
        options |= {} if cost_limits is None else {"cost_limits": cost_limits}
    if named in TASKS:
        target = make_task(named, **options)
    if isinstance(target, Env):
        return check_functional(target, steps=steps)
    report = Report()
    if isinstance(target, gym.Env):
        _check_gymnasium(target, cost_fn, cost_limits, steps, report)
        return report.findings
    env = HostTaskEnv(named, **options) if named in HOST_TASKS else _make(target, options, report)
    if env is not None:
        try:
            _check_gymnasium(env, cost_fn, cost_limits, steps, report)
        finally:
            env.close()
    return report.findings


def _make(target: str | Callable[[], gym.Env], options: Fields, report: Report) -> gym.Env | None:
    if isinstance(target, str):
        check_gymnasium_id(target)
        target = find_source(target)
    try:
        env = make_gymnasium(target, {**options, **_quiet(target)}, None)
        limit = _time_limit(env)
        return env if limit is None or env.spec else gym.wrappers.TimeLimit(env, limit)
    except (MissingExtraError, UnknownNameError):
        raise
    except AwavoError as error:
        first = "gymnasium.make(id)" if isinstance(target, str) else "the call that makes it"
        report.error(f"the environment cannot be made: {str(error).rstrip('.')}.", f"Make {first} work first.")
        return None


def check_functional(env: Env, *, steps: int = 1000) -> list[Finding]:
    """Check a functional environment: types by `jax.eval_shape`, behaviour by a compiled rollout."""
    from awavo.tasks.check_functional import find_problems

    report = Report()
    find_problems(env, steps, report)
    return report.findings


def _quiet(target: object) -> dict[str, bool]:
    return {"disable_env_checker": True} if isinstance(target, str) else {}


def _check_gymnasium(
    env: gym.Env, cost_fn: CostFn | None, limits: Sequence[float] | None, steps: int, report: Report
) -> None:
    try:
        if not (_check_spaces(env, report) and _check_reset(env, report) and _check_shape_of_step(env, report)):
            return
        env = _with_five_values(env)
        trace = record(env, steps, SEED, report, need_costs=cost_fn is None)
        _check_trace(trace, cost_fn, limits, report)
        if not report.errors:
            _check_attributes(env, trace, cost_fn, limits, report)
        _check_seeds(env, min(steps, 200), report)
    except (Exception, SystemExit) as error:
        where = next((f.function for f in reversed(inspect.trace()) if f.function in REMEDIES), "step")
        report.error(f"{where}() {raised(error)}.", REMEDIES[where])


def _check_spaces(env: gym.Env, report: Report) -> bool:
    if told := space_problem(env):
        report.error(f"{told[1]}.", f"Set self.{told[0]} in __init__.")
        return False
    for check, space in ((check_observation_space, env.observation_space), (action_spec, env.action_space)):
        try:
            check(space)  # pyright: ignore[reportArgumentType]
        except AwavoError as error:
            problem, _, remedy = str(error).rpartition(": ")
            report.error(problem + ".", remedy[0].upper() + remedy[1:])
    space = env.action_space
    if isinstance(space, spaces.Box) and all_finite(space.high) and (space.low != -space.high).any():
        report.warning(
            f"action_space: expected a range symmetric around 0, saw {space}.",
            "Rescale actions to [-1, 1] (gymnasium.wrappers.RescaleAction): a policy starts in the middle of it.",
        )
    return not report.errors


def _check_reset(env: gym.Env, report: Report) -> bool:
    if problem := reset_problem(env):
        report.error(f"{problem}.", RESET[0].upper() + RESET[1:])
        return False
    # Bare: Gymnasium's wrappers would raise before anything can be said.
    result = env.unwrapped.reset(seed=SEED)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        seen = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        report.error(
            f"reset(): expected (obs, info), saw {seen}.", "Return the observation and a dictionary from reset()."
        )
        return False
    observe(env.observation_space, result[0], "reset()", report)
    return not report.errors


def _check_shape_of_step(env: gym.Env, report: Report) -> bool:
    """One step of the bare environment: Gymnasium's own wrappers already fail on a wrong number of values."""
    env.action_space.seed(SEED)
    result = env.unwrapped.step(env.action_space.sample())
    number = len(result) if isinstance(result, tuple) else 1
    if number in (5, 6):
        return True
    remedy = {
        4: "Replace done by terminated (the task ended) and truncated (the time was up), and return five values.",
    }
    report.error(
        f"step(): expected 5 values (obs, reward, terminated, truncated, info), or 6 with a cost after the reward, "
        f"saw {number}.",
        remedy.get(number, "Return a tuple (obs, reward, terminated, truncated, info) from step()."),
    )
    return False


def _with_five_values(env: gym.Env) -> gym.Env:
    """The environment as training sees it, after a step that shows whether it has six values."""
    env = accept_six_values(env)
    env.reset(seed=SEED)
    env.step(env.action_space.sample())
    return env


def record(env: gym.Env, steps: int, seed: int, report: Report, *, need_costs: bool) -> Trace:
    """Run random actions for `steps` steps, over as many episodes as that takes."""
    env.action_space.seed(seed)
    obs, info = env.reset(seed=seed)
    trace = Trace(env.observation_space, _time_limit(env), getattr(env.unwrapped, "num_costs", None), need_costs)
    trace.begin(obs, info)
    for _ in range(steps):
        action = env.action_space.sample()
        result = env.step(action)
        watch_step(trace, action, result, report)
        if result[2] or result[3]:
            trace.begin(*env.reset())
    return trace


def _time_limit(env: gym.Env) -> int | None:
    if isinstance(env.unwrapped, HostTaskEnv):  # made here, not by gymnasium.make, which would give it a spec
        return env.unwrapped.task_spec.horizon
    own = own_attribute(env, "horizon")
    registered = env.spec.max_episode_steps if env.spec else None
    return registered or wrapped_limit(env) or (int(own) if isinstance(own, int | np.integer) and own > 0 else None)


def _check_trace(trace: Trace, cost_fn: CostFn | None, limits: Sequence[float] | None, report: Report) -> None:
    """Check what only a whole rollout shows."""
    check_ends(trace, report)
    check_spread(trace, report)
    if cost_fn is None:
        check_start_infos(trace, report)
        if len({c.shape for c in trace.costs}) == 1:
            _check_costs(np.array(trace.costs), limits, trace, report)
        return
    obs, actions, next_obs = (np.array(rows) for rows in (trace.obs, trace.actions, trace.next_obs))
    obs, next_obs = obs.astype(np.float32), next_obs.astype(np.float32)
    if actions.ndim > 2:  # training gives the actions of a box of any shape as rows
        actions = actions.reshape(len(actions), -1)
    infos = None
    if takes_info(cost_fn):
        source = find_info(trace.infos[0])
        infos = source.unpack(np.array([source.read(info) for info in trace.infos]))
    try:
        costs = apply_cost_fn(cost_fn, obs, actions, next_obs, infos)
        first = infos and {name: rows[:1] for name, rows in infos.items()}
        single = apply_cost_fn(cost_fn, obs[:1], actions[:1], next_obs[:1], first)
    except (AwavoError, ValueError, TypeError, IndexError) as error:
        what = str(error).removeprefix("cost_fn ").rstrip(".")
        report.error(f"cost_fn: {what}.", "Write cost_fn for batches: obs[:, 0], not obs[0].")
        return
    if not np.allclose(single, costs[:1], equal_nan=True):
        report.error(
            f"cost_fn: expected {single[0]} for a transition whatever stands beside it, saw {costs[0]}.",
            "Use no sums or means over the rows in cost_fn.",
        )
    _check_costs(costs, limits, trace, report)


def _check_costs(costs: np.ndarray, limits: Sequence[float] | None, trace: Trace, report: Report) -> None:
    check_cost_series(costs, trace, report)
    if limits is not None:
        check_totals(costs, limits, trace, report)


def _check_attributes(
    env: gym.Env, trace: Trace, cost_fn: CostFn | None, limits: Sequence[float] | None, report: Report
) -> None:
    """The environment's own names and limits of its costs and its horizon, by the rules of training."""
    own, horizon = None, own_attribute(env, "horizon")
    try:
        if cost_fn is None:
            source = find_costs(trace.infos[0], None, own_list(env, "cost_names", str))
            own = own_list(env, "cost_limits", float) if limits is None else None
            if own is not None:
                name_costs(source.read(trace.infos[0])[None], source.names, own)
        if env.spec is None and horizon is not None:
            check_option("horizon", horizon, 1)
    except AwavoError as error:
        report.error(
            f"attributes: {str(error).rstrip('.')}.",
            "Let cost_names and cost_limits have one entry for each cost, limits >= 0, and horizon be a whole number.",
        )


def _check_seeds(env: gym.Env, steps: int, report: Report) -> None:
    if env.spec is not None and env.spec.nondeterministic:
        return
    quiet = Report()
    first, second = (record(env, steps, SEED, quiet, need_costs=False) for _ in range(2))
    for name in ("starts", "next_obs", "rewards", "costs"):
        one, other = getattr(first, name), getattr(second, name)
        if len(one) != len(other) or not all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True)
        ):
            method = "reset(seed=)" if name == "starts" else "step()"
            report.error(
                f"{method}: expected the same {name} twice for seed {SEED} and the same actions, saw different ones.",
                "Draw every random number from self.np_random, and call super().reset(seed=seed) in reset().",
            )
            return
    other = record(env, 1, SEED + 1, quiet, need_costs=False)
    if np.array_equal(first.starts[0], other.starts[0]):
        report.info(
            f"reset(): the seeds {SEED} and {SEED + 1} give the same first observation.",
            "Nothing, if the start is fixed on purpose; else draw it from self.np_random.",
        )
