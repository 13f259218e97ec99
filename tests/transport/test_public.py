"""The public names: typed, documented, shapes as annotated; and every example of the documentation page runs."""

import inspect
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import jaxtyped

import awavo.transport as transport

PAGE = Path(__file__).parents[2] / "docs" / "transport.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
FUNCTIONS = [f for f in vars(transport).values() if inspect.isfunction(f)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_typed_and_documented(function):
    assert function.__doc__
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty


def test_annotations_hold(rng, key):
    check = jaxtyped(typechecker=beartype)
    x, y = (jax.numpy.asarray(rng.standard_normal((n, 3)), "float32") for n in (6, 5))
    slices = check(transport.orthogonal_slices)(key, 4, 3)
    check(transport.sliced_wasserstein)(x, y, slices=slices)
    check(transport.sliced_wasserstein)(x, y, key=key, x_weights=np.full(6, 1 / 6, np.float32))
    check(transport.wasserstein_1d)(x.T, y.T)
    check(transport.max_sliced_wasserstein)(x, y, key=key)
    check(transport.ascend_slices)(x, y, slices)
    check(transport.sliced_displacement)(x, y, slices)
    check(transport.adaptive_gswd)(x, y, slices, defining=transport.Linear())
    check(transport.kostlan_slices)(key, 4, 3)
    check(transport.unit_slices)(slices)
    check(transport.slice_overlap)(slices)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_documented_examples_run(number):
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number + 1}", "exec"), {})


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 10
