"""The rule that sizes follow from dimensions and environments, never from a task's name."""

import jax
import numpy as np
import pytest
import toys
from toys import CONTINUOUS, SPEC

from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.algorithms.orpo_dr import OrpoDrConfig, orpo_dr_parts
from awavo.algorithms.sizes import SMALL, generation, is_small, patience, resolve_sizes, sees_tails

LARGE = CONTINUOUS._replace(obs_dim=SMALL)


def test_a_task_is_small_by_the_numbers_it_has():
    assert is_small(SPEC._replace(obs_dim=SMALL - 1))  # a discrete action is one number
    assert not is_small(SPEC._replace(obs_dim=SMALL))
    assert is_small(CONTINUOUS._replace(obs_dim=SMALL - 2))
    assert not is_small(CONTINUOUS._replace(obs_dim=SMALL - 1))


@pytest.mark.parametrize(
    ("spec", "config", "expected"),
    [
        (SPEC, AwavoConfig(), (4, 32, 128, 128, (128, 128), 4)),
        (SPEC, AwavoConfig(planning="off"), (16, 32, 64, 128, (64, 64), 16)),
        (SPEC, OrpoDrConfig(), (16, 32, 64, 128, (64, 64), 16)),
        (LARGE, AwavoConfig(), (16, 8, 64, 256, (256, 256), 16)),
        (LARGE, OrpoDrConfig(num_envs=2048), (2048, 8, 64, 4096, (256, 256), 2048)),
        (LARGE, OrpoDrConfig(num_envs=64, rollout_length=4), (64, 4, 64, 256, (256, 256), 64)),
    ],
    ids=["planned", "not planned", "policy alone", "larger", "thousands", "as asked"],
)
def test_sizes_of_the_table(spec, config, expected):
    found = resolve_sizes(spec, config)
    sizes = (found.num_envs, found.rollout_length, found.num_updates, found.batch_size, found.hidden)
    assert (*sizes, generation(spec, found)) == expected
    assert found.replay_capacity % (found.num_envs * found.rollout_length) == 0
    assert resolve_sizes(spec, found) == found


def test_larger_tasks_see_their_tails_and_have_patience():
    assert (patience(SPEC), sees_tails(SPEC)) == (1.0, False)
    assert (patience(LARGE), sees_tails(LARGE)) == (5.0, True)


def test_no_size_looks_at_a_name():
    for config in (AwavoConfig(), OrpoDrConfig()):
        assert resolve_sizes(SPEC, config) == resolve_sizes(SPEC._replace(name="cartpole"), config)


def test_planning_is_a_rule_and_a_wish():
    assert resolve_sizes(SPEC, AwavoConfig()).planning == "on"
    assert resolve_sizes(LARGE, AwavoConfig()).planning == "off"
    assert resolve_sizes(LARGE, AwavoConfig(planning="on")).planning == "on"


@pytest.mark.parametrize("spec", [CONTINUOUS, LARGE], ids=["small", "larger"])
def test_who_plans_explores_by_his_plans_and_has_no_greedy_environments(spec):
    """Also where the sizes are a larger task's: no first episodes cut, no noise of the policy's own."""
    planned, alone = (awavo(spec, AwavoConfig(planning=wish)) for wish in ("on", "off"))
    found = [[part is not None for part in (one.plan, one.cut_after, one.explore)] for one in (planned, alone)]
    assert found == [[True, False, False], [False, True, True]]
    config = AwavoConfig(planning="on", num_envs=4)
    rollout = toys.toy_rollout(spec, envs=4, steps=spec.horizon)
    costs = np.zeros((*rollout.done.shape, 2), np.float32)
    costs[:, 3] = 1.0  # of the environment that would decide greedily

    @jax.jit
    def estimate(key):
        parts = orpo_dr_parts(spec, config)
        return parts.learn(key, parts.init(key), rollout._replace(costs=costs), None)[1].cost_estimate

    np.testing.assert_allclose(estimate(jax.random.key(0)), spec.horizon / 4, rtol=1e-5)
