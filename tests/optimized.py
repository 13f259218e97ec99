"""For programs that compute longer than they compile: LLVM's optimisation, which conftest.py turns off."""

import jax

__all__ = ["optimized"]


def optimized(function, **options):
    """`jax.jit` that takes twice as long to compile, for code that runs several times as fast."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 1}, **options)
