"""States and parameters of dynamical systems from partial observations: Lorenz-96, and any system of one's own."""

from awavo.assimilation.fit import Fit, MisfitError
from awavo.assimilation.infer import Inferred, infer
from awavo.assimilation.particles import Particles, infer_particles
from awavo.assimilation.system import System, integrate
from awavo.assimilation.tracking import RingFilter, Tracked, make_filter, track

__all__ = [
    "Fit", "Inferred", "MisfitError", "Particles", "RingFilter", "System", "Tracked", "infer", "infer_particles",
    "integrate", "make_filter", "track",
]  # fmt: skip
