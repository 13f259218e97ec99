"""The public names are typed and documented, and every example of the documentation page runs."""

import inspect
import re
from pathlib import Path

import pytest

import awavo.transport as transport

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("transport.md", "transport_from_pot.md")]
EXAMPLES = [
    (page.name, text)
    for page in PAGES
    for text in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
]
FUNCTIONS = [f for f in vars(transport).values() if inspect.isfunction(f)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_typed_and_documented(function):
    assert function.__doc__
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_documented_examples_run(number):
    name, text = EXAMPLES[number]
    exec(compile(text, f"{name} example {number + 1}", "exec"), {})


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 10
