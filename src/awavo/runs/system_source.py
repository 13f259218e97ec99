"""The problem that a command names: a built-in system with a truth of its own, or the user's system and file.

Code is imported only as typed on the command line (MODULE:SYSTEM): an inference's folder names none that would be run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from awavo.assimilation.examples import EXAMPLES, make_example
from awavo.assimilation.observation_files import read_observations
from awavo.assimilation.system import System, seen_names
from awavo.errors import InputError
from awavo.registry import import_named

__all__ = ["Problem", "read_problem"]


class Problem(NamedTuple):
    """A system, what was seen of it, and the truth where it is known."""

    system: System
    observed: np.ndarray
    noise: Any
    times: np.ndarray | None
    start: float | None
    truth: np.ndarray | None
    theta: np.ndarray | None


def read_problem(
    name: str, data: Path | None, noise: float | None, start: float | None, seed: int, states: int | None
) -> Problem:
    """Build the problem of `awavo infer NAME`."""
    if states is not None and (name != "ks" or data is not None):
        raise InputError("--states is an option of twin experiments of lorenz96 and ks: leave it out.")
    if data is None:
        if start is not None or noise is not None:
            raise InputError("--start and --noise are options of own observations: give --data too.")
        made = make_example(name, seed, **({} if states is None else {"sites": states}))
        times, begin = made.times[1:], float(made.times[0])
        return Problem(made.system, made.observed, made.noise, times, begin, made.truth, made.theta)
    usual: float | None = None
    if name == "ks":  # as many sites as the file has
        read = read_observations(data)
        example = make_example(name, 0, num_times=2, sites=int(np.shape(read.observed)[-1]))
        system, usual = example.system, example.noise
    else:
        if name in EXAMPLES:
            example = make_example(name, 0, num_times=2)
            system, usual = example.system, example.noise
        else:
            system = own_system(name)
        read = read_observations(data, seen_names(system))
    given = noise if noise is not None else read.noise if read.noise is not None else usual
    if given is None:
        raise InputError(f"the noise of {data} is not known: give --noise, or an array 'noise' in the file.")
    times = None if read.times is None else np.asarray(read.times)
    return Problem(system, np.asarray(read.observed), given, times, start, read.truth, None)


def own_system(path: str) -> System:
    """Import MODULE:NAME, a `System` or a function without arguments that returns one."""
    found = import_named(path, "SYSTEM")
    if callable(found) and not isinstance(found, System):
        try:
            found = found()
        except Exception as error:  # the user's function may raise anything
            raise InputError(
                f"SYSTEM='{path}' cannot be built ({error}): expected a function of no arguments."
            ) from error
    if not isinstance(found, System):
        raise InputError(f"SYSTEM='{path}' is {type(found).__name__}, expected an awavo.assimilation.System.")
    return found
