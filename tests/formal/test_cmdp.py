"""The occupancy LP against brute force, a second solver and its own dual; policies evaluated exactly."""

import numpy as np
import pytest
from cmdp_oracles import brute_force, dual_value

from awavo.errors import InputError
from awavo.formal.cmdp import exact_cmdp, policy_totals, random_cmdp, solve
from awavo.tasks.tabular import garnet_cmdp, hazard_grid_cmdp


@pytest.mark.parametrize("seed", range(3))
def test_optimum_against_brute_force_and_a_second_solver(seed):
    cmdp = random_cmdp(seed, num_states=4, num_actions=2, branching=2)
    solution = solve(cmdp)
    assert brute_force(cmdp) == pytest.approx(solution.value, abs=1e-8)
    assert dual_value(cmdp) == pytest.approx(solution.value, abs=1e-8)


def test_second_solver_on_a_larger_cmdp_with_two_active_constraints():
    cmdp = random_cmdp(1)
    solution = solve(cmdp)
    assert (solution.multipliers > 0.1).all()
    assert dual_value(cmdp) == pytest.approx(solution.value, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_strong_duality_and_feasibility(seed):
    cmdp = random_cmdp(seed)
    solution = solve(cmdp)
    assert solution.dual == pytest.approx(solution.value, abs=1e-8)
    priced = cmdp.signals[0] - np.einsum("i,isa->sa", solution.multipliers, cmdp.signals[1:])
    slack = solution.values[:, None] - priced - cmdp.discount * cmdp.transition @ solution.values
    assert slack.min() >= -1e-12
    assert (solution.costs <= cmdp.limits + 1e-8).all()
    np.testing.assert_allclose(solution.multipliers * (solution.costs - cmdp.limits), 0, atol=1e-7)
    totals = policy_totals(cmdp, solution.policy)
    np.testing.assert_allclose(totals, [solution.value, *solution.costs], atol=1e-8)


def test_random_policies_never_beat_the_optimum():
    cmdp = random_cmdp(2)
    solution = solve(cmdp)
    rng = np.random.default_rng(0)
    for _ in range(200):
        totals = policy_totals(cmdp, rng.dirichlet(np.full(3, 0.3), 8))
        bound = solution.value + solution.multipliers @ np.maximum(totals[1:] - cmdp.limits, 0)
        assert totals[0] <= bound + 1e-8


def test_a_wrong_dual_is_noticed():
    cmdp = random_cmdp(0)
    solution = solve(cmdp)
    other = solve(cmdp._replace(limits=cmdp.limits * 1.05))
    assert abs(other.dual - solution.value) > 1e-3


def test_tasks_become_exact_cmdps():
    task = hazard_grid_cmdp()
    cmdp = exact_cmdp(task.transition, task.signals, task.initial, (0.5, 3.0), 0.9)
    solution = solve(cmdp)
    assert solution.costs[0] <= 0.5 + 1e-8
    free = solve(cmdp._replace(limits=np.full(2, np.inf)))
    assert free.value >= solution.value


def test_bad_input():
    task = garnet_cmdp()
    with pytest.raises(InputError, match="infeasible"):
        solve(exact_cmdp(task.transition, task.signals, task.initial, (0.0, 0.0), 0.9))
    with pytest.raises(InputError, match="one limit"):
        exact_cmdp(task.transition, task.signals, task.initial, (1.0,), 0.9)
    with pytest.raises(InputError, match="discount"):
        exact_cmdp(task.transition, task.signals, task.initial, (1.0, 1.0), 1.0)
    with pytest.raises(InputError, match="sum one"):
        exact_cmdp(2 * np.asarray(task.transition), task.signals, task.initial, (1.0, 1.0), 0.9)
    with pytest.raises(InputError, match="brute force"):
        brute_force(random_cmdp(0))
