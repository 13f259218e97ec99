import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from awavo.errors import InputError, RunFolderError
from awavo.results.plots import learning_figure, provenance, save_figure
from awavo.results.store import load_run


def test_figure_has_every_panel_limit_and_seed(run_folder):
    run = load_run(run_folder)
    figure = learning_figure([run])
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["Return", "Cost: position", "Cost: angle"]
    assert len(figure.axes[0].lines) == 11
    assert len(figure.axes[1].lines) == 12
    assert [text.get_text() for text in figure.axes[2].texts] == ["limit 10"]


def test_files_say_where_they_come_from(run_folder, tmp_path):
    run = load_run(run_folder)
    png, svg = save_figure(learning_figure([run], per_seed=False), tmp_path / "figure.png", [run])
    assert (png.name, svg.name) == ("figure.png", "figure.svg")
    with Image.open(png) as image:
        assert image.info["Description"] == provenance(run)
        assert min(image.size) > 500
    content = svg.read_text()
    ET.fromstring(content)
    for fact in ("awavo train cartpole", "0123456789ab", "seeds 0-9", "aarch64"):
        assert fact in content


def test_names_are_literal_and_several_runs_share_a_legend(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path / p, preset=p, seeds=2, command="a $x$ <b>\n")) for p in ("$\\frac$", "hard")]
    figure = learning_figure(runs)
    save_figure(figure, tmp_path / "f", runs)
    assert len(figure.legends[0].get_texts()) == 2


def test_bad_input(run_folder, tmp_path, write_run):
    run = load_run(run_folder)
    with pytest.raises(InputError, match="no runs"):
        learning_figure([])
    with pytest.raises(InputError, match="different problems"):
        learning_figure([run, load_run(write_run(tmp_path / "other", task="acrobot"))])
    with pytest.raises(RunFolderError, match="Cannot write"):
        save_figure(learning_figure([run], caption=False), tmp_path / "no" / "where", [run])
