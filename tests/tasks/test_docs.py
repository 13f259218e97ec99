"""The code of the page on environments runs as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_the_code_on_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL).group(1)
    assert shown in said
    assert "cost_names=('cost',), cost_limits=(30.0,)" in said
