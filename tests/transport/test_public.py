"""The public names are typed and documented, and every example of the documentation page runs."""

import inspect
import re
from pathlib import Path

import pytest

import awavo.transport as transport

PAGE = Path(__file__).parents[2] / "docs" / "transport.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
FUNCTIONS = [f for f in vars(transport).values() if inspect.isfunction(f)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_typed_and_documented(function):
    assert function.__doc__
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_documented_examples_run(number):
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number + 1}", "exec"), {})


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 10
