"""Checks of a functional environment, before jax meets it inside a compiled loop and answers with a page of tracers."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from awavo.checks import all_finite
from awavo.tasks.check_rules import Report
from awavo.types import Discrete, Env, EnvSpec, Timestep

__all__ = ["find_problems"]

NUM_ENVS = 8


def find_problems(env: Env, steps: int, report: Report) -> None:
    """Fill the report: the spec, the types, then a rollout."""
    _check_spec(env.spec, report)
    if not report.errors and _check_types(env, report):
        _check_rollout(env, max(1, steps), report)


def _check_spec(spec: EnvSpec, report: Report) -> None:
    if len(spec.cost_limits) != len(spec.cost_names) or len(set(spec.cost_names)) != len(spec.cost_names):
        report.error(
            f"spec: expected one limit for each of distinct cost names, saw {spec.cost_names} and {spec.cost_limits}.",
            "Give cost_names and cost_limits the same length, no name twice.",
        )
    if spec.horizon < 1:
        report.error(f"spec: expected horizon >= 1, saw {spec.horizon}.", "Set the number of steps of an episode.")
    space = spec.action_space
    if not isinstance(space, Discrete) and not all_finite(space.low, space.high):
        report.error(
            f"spec: expected finite action bounds, saw {space}.", "Give every action component a low and a high."
        )


def _example_action(spec: EnvSpec) -> jax.ShapeDtypeStruct:
    space = spec.action_space
    if isinstance(space, Discrete):
        return jax.ShapeDtypeStruct((), jnp.int32)
    return jax.ShapeDtypeStruct((space.dim,), jnp.float32)


def _check_types(env: Env, report: Report) -> bool:
    key = jax.eval_shape(lambda: jax.random.key(0))
    spec = env.spec
    state = _trace("reset", lambda: jax.eval_shape(env.reset, key, env.params), 2, report)
    if state is None:
        return False
    state, obs = state
    _expect("reset() obs", obs, (spec.obs_dim,), jnp.float32, report)
    stepped = _trace("step", lambda: jax.eval_shape(env.step, key, state, _example_action(spec), env.params), 2, report)
    if stepped is None:
        return False
    after, out = stepped
    if not isinstance(out, Timestep):
        report.error(
            f"step(): expected a Timestep, saw {type(out).__name__}.", "Return (state, awavo.types.Timestep(...))."
        )
        return False
    _compare_states(state, after, report)
    shapes = {"obs": (spec.obs_dim,), "reward": (), "costs": (spec.num_costs,), "final_obs": (spec.obs_dim,)}
    for name, shape in shapes.items():
        _expect(f"step() {name}", getattr(out, name), shape, jnp.float32, report)
    for name in ("terminated", "truncated"):
        _expect(f"step() {name}", getattr(out, name), (), jnp.bool_, report)
    return not report.errors


def _trace(name: str, call: Callable[[], object], number: int, report: Report) -> tuple | None:
    try:
        result = call()
    except Exception as error:
        line = str(error).strip().split("\n")[0]
        report.error(
            f"{name}(): expected a function that jax can trace, saw {type(error).__name__}: {line}",
            "Use jnp and jnp.where instead of Python's if, float() and numpy on traced values.",
        )
        return None
    if not isinstance(result, tuple) or len(result) != number:
        want = "(state, obs)" if name == "reset" else "(state, Timestep)"
        report.error(f"{name}(): expected {want}, saw {type(result).__name__}.", f"Return {want} from {name}().")
        return None
    return result


def _expect(where: str, leaf: object, shape: tuple[int, ...], dtype: type, report: Report) -> None:
    seen = (getattr(leaf, "shape", None), getattr(leaf, "dtype", None))
    if seen[0] != shape or seen[1] != dtype:
        report.error(
            f"{where}: expected {jnp.dtype(dtype).name}{list(shape)}, saw {seen[1]}{list(seen[0] or ())}.",
            f"Return {where.split()[1]} as {jnp.dtype(dtype).name} of shape {shape}.",
        )


def _compare_states(before: PyTree, after: PyTree, report: Report) -> None:
    first, second = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (before, after))
    for path in sorted({*first, *second}, key=str):
        one, other = first.get(path), second.get(path)
        if one is None or other is None or (one.shape, one.dtype) != (other.shape, other.dtype):
            report.error(
                f"step(): expected state{jax.tree_util.keystr(path)} as in reset(), {_shown(one)}; saw {_shown(other)}",
                "Keep structure, shape and dtype of every leaf of the state: a compiled loop carries it.",
            )
            return
    if jax.tree.structure(before) != jax.tree.structure(after):
        report.error(
            "step(): expected the state's structure as reset() made it, saw another.",
            "Return the state in the same containers from reset() and step().",
        )


def _shown(leaf: jax.ShapeDtypeStruct | None) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


def _rollout(env: Env, steps: int) -> tuple[Timestep, np.ndarray]:
    """Random steps of a batch, and the number of steps since the reset at each."""
    space, shape, rng = env.spec.action_space, (steps, NUM_ENVS), np.random.default_rng(7)
    if isinstance(space, Discrete):
        actions = rng.integers(space.num, size=shape).astype(np.int32)
    else:
        actions = rng.uniform(space.low, space.high, (*shape, space.dim)).astype(np.float32)

    def advance(carry, inputs):
        state, time = carry
        state, out = jax.vmap(env.step, (0, 0, 0, None))(inputs[0], state, inputs[1], env.params)
        time = time + 1
        return (state, jnp.where(out.terminated | out.truncated, 0, time)), (out, time)

    @jax.jit
    def run(keys, actions):
        state, _ = jax.vmap(env.reset, (0, None))(keys[0], env.params)
        return jax.lax.scan(advance, (state, jnp.zeros(NUM_ENVS, jnp.int32)), (keys[1:], actions))[1]

    return jax.device_get(run(jax.random.split(jax.random.key(7), (steps + 1, NUM_ENVS)), actions))


def _check_rollout(env: Env, steps: int, report: Report) -> None:
    # Long enough to see an episode end by time, short enough to wait for.
    out, time = _rollout(env, min(4000, max(steps // NUM_ENVS, env.spec.horizon + 1)))
    done = out.terminated | out.truncated
    for name in ("obs", "reward", "costs", "final_obs"):
        if not all_finite(getattr(out, name)):
            report.error(
                f"step() {name}: expected finite values, saw NaN or infinity.", f"Find it in what makes {name}."
            )
    if time.max() > env.spec.horizon:
        report.error(
            f"step(): expected an episode to end after at most {env.spec.horizon} steps, saw {time.max()} and no end.",
            "Set truncated at spec.horizon, or build the environment with awavo.tasks.base.auto_reset.",
        )
    if (out.terminated & out.truncated).any():
        report.error(
            "step(): expected terminated or truncated, saw both.", "Report truncated only where terminated is False."
        )
    if not np.array_equal(out.obs[~done], out.final_obs[~done]):
        report.error(
            "step(): expected final_obs equal to obs inside an episode, saw different ones.",
            "Set final_obs to the observation before the auto-reset, whether or not one happens.",
        )
    if done.sum() > 2 and np.array_equal(out.obs[done], out.final_obs[done]):
        report.error(
            "step(): expected obs of the next episode where one ends, saw final_obs again.",
            "Reset the state inside step() where the episode ends, or use awavo.tasks.base.auto_reset.",
        )
    if out.costs.min(initial=0.0) < 0:
        report.warning(
            f"step(): expected costs >= 0, saw {out.costs.min():g}.",
            "Shift or clip the cost: a negative one lets a policy buy back violations.",
        )
