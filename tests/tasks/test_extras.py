"""What is not installed is named with the extra that brings it, and every extra that is named exists."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from awavo.errors import InputError, MissingExtraError
from awavo.results.video import find_ffmpeg
from awavo.runs.episode import Filming
from awavo.tasks.host import host_env
from awavo.tasks.making import EXTRAS, make_gymnasium

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "module"), [("HalfCheetah-v5", "mujoco"), ("HalfCheetah-v5", "imageio"), ("LunarLander-v3", "Box2D")]
)
def test_gymnasium_environments_name_the_extra(name, module, monkeypatch):
    if module == "imageio":
        pytest.importorskip("mujoco")
    for loaded in [m for m in sys.modules if m.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d"))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"'{name}' needs {module}, .* 'awavo\[{EXTRAS[module]}\]'"):
        make_gymnasium(name, {}, None)


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1"])
def test_a_picture_without_pygame_names_the_extra(name, monkeypatch):
    options = {"render_mode": "rgb_array"}
    with host_env(name, num_envs=1, cost_fn=lambda *_: np.zeros(1), cost_limits=(1,), env_options=options) as host:
        host.reset(0)
        monkeypatch.setitem(sys.modules, "pygame", None)
        filming = Filming(host.picture, name)
        filming.look(0, np.zeros(3))
    why = "pygame is not installed: pip install 'awavo[render]'"
    assert filming.notes == [f"there is no picture of {name} ({why}): its observation is shown as bars instead."]
    assert len(filming.shots) == 1


def test_a_picture_that_fails_for_another_reason_names_no_extra():
    def draw():
        raise ModuleNotFoundError("No module named 'my_drawings'", name="my_drawings")

    filming = Filming(draw, "Mine-v0")
    filming.look(0, np.zeros(3))
    assert "my_drawings" in filming.notes[0]
    assert "pip" not in filming.notes[0]


def test_an_mp4_without_ffmpeg_names_the_extra(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"needs ffmpeg, which is not installed: pip install 'awavo\[render\]'"):
        find_ffmpeg()


def test_the_extras_bring_what_they_are_named_for():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {name: " ".join(wanted) for name, wanted in extras.items()}
    assert "pygame-ce" in brought["render"]
    assert "imageio-ffmpeg" in brought["render"]
    assert "gymnasium[box2d]" in brought["box2d"]  # which brings pygame-ce beside Box2D
    assert "imageio" in brought["mujoco"]


def test_every_extra_that_is_named_exists():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"awavo\[([\w-]+)\]", text)) | set(EXTRAS.values())
    assert named
    assert named <= set(known)


def test_the_demo_installs_the_plain_package_and_the_tests_the_rest():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: install-plain$", makefile, re.MULTILINE)
    assert re.search(r"^test: install$", makefile, re.MULTILINE)
    plain = makefile.split("/.installed-plain: ")[1].split("\n\n")[0]
    assert "$(INSTALL) .\n" in plain
    assert "dev" not in plain
