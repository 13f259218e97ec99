"""Learning curves as pictures."""

import numpy as np
from made_up import learning_result
from matplotlib.figure import Figure

from awavo.paper.comparison import compare_task
from awavo.paper.learning_plots import draw_curves
from awavo.paper.method_results import load_method_results, read_results


def test_a_curve_of_one_point_is_a_mark(write):
    around = np.linspace(-1, 1, 10)
    folder = write(
        learning_result("drone", "awavo", 5 + around), learning_result("drone", "paets", 1 + around, path=(1.0,))
    )
    entries, _ = load_method_results(read_results(folder, "learning"), [])
    figure = Figure()
    draw_curves(figure, [compare_task(entries, {"threshold": 2})])
    marks = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in marks] == [1]
