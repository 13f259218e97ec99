"""What tests/typechecker.py promises: in the tests a call with a wrong shape fails, in every room."""

import ast
import importlib
import inspect

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from test_architecture import MODULES, TREES

from awavo.training.rollout import zero_totals

# One public function of each room that takes arrays, with a shape that its annotation forbids.
WRONG = {
    "transport.sliced_wasserstein": (jnp.zeros((5, 2)), jnp.zeros((4, 3))),
    "networks.quantiles.quantile_huber": (jnp.zeros((2, 1, 4)), jnp.zeros((3, 1, 4)), 1.0),
    "inference.ensemble.bootstrap_weights": (jnp.zeros(3, int),),
    "algorithms.trust_region.gram_matrix": (jnp.zeros((2, 3)), jnp.zeros((2, 4))),
    "tasks.acrobot.tip_height": (jnp.zeros(3),),
    "training.rollout.add_step": (zero_totals(2, 1), jnp.zeros(2), jnp.zeros((3, 1))),
    "assimilation.smoother.update_covariance": (jnp.zeros((2, 3, 3)), jnp.zeros((2, 4))),
    "results.trajectory_scores.fair_crps": (np.zeros((5, 3)), np.zeros(4)),
    "formal.bellman.project_quantiles": (np.zeros((2, 3)), np.zeros((2, 4)), 2),
    "control.tracking.limit_tilt": (jnp.zeros(4), 1.0),
    "explain.measures.influences": (jnp.zeros(4),),
    "tasks.quadrotor.frames.flip_vector": (np.zeros(2),),
}
# Rooms whose functions take names, folders and settings: a wrong type.
WRONG_TYPES = {
    "runs.problem.resolve_config": ("cartpole",),
    "paper.figures.load": (1,),
    "cli.main.main": ("list",),
}


def public(path):
    module, _, name = f"awavo.{path}".rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_shape_is_noticed(path):
    with pytest.raises(jaxtyping.TypeCheckError):
        public(path)(*WRONG[path])


@pytest.mark.parametrize("path", WRONG_TYPES)
def test_a_wrong_type_is_noticed(path):
    with pytest.raises((jaxtyping.TypeCheckError, BeartypeCallHintViolation)):
        public(path)(*WRONG_TYPES[path])


@pytest.mark.bad_input
def test_a_test_of_bad_input_sees_the_refusal_of_the_package():
    with pytest.raises(ValueError, match=r"dimension"):
        public("transport.sliced_wasserstein")(*WRONG["transport.sliced_wasserstein"])


def for_type_checkers(name):
    """Names that a module binds under `if TYPE_CHECKING`."""
    trees = [node for node in TREES[MODULES[name]].body if isinstance(node, ast.If)]
    nodes = [node for tree in trees if ast.unparse(tree.test) == "TYPE_CHECKING" for node in ast.walk(tree)]
    imported = {alias.asname or alias.name for node in nodes for alias in getattr(node, "names", [])}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_annotations_can_be_resolved(name):
    """One that cannot is checked by nobody, and nobody would notice; names imported for type checkers alone may."""
    module = importlib.import_module(name)
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
    classes = [value for value in own if inspect.isclass(value)]
    methods = [inspect.unwrap(value) for kind in classes for value in vars(kind).values() if callable(value)]
    for value in (*filter(inspect.isfunction, own), *classes, *filter(inspect.isfunction, methods)):
        try:
            inspect.get_annotations(value, eval_str=True)
        except NameError as error:
            if error.name not in for_type_checkers(name):
                raise
