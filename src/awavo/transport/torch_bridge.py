"""Sliced distances of torch tensors, with gradients for torch; torch itself is no dependency of awavo.

Tensors are handed over by DLPack, without a copy where both sides allow it. On a CPU the value and its gradient are
computed by NumPy in one pass; on a GPU by jax, which must see the same device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from awavo.errors import InputError
from awavo.transport.gradient import sliced_gradient
from awavo.types import Fields

__all__ = ["torch_sliced_wasserstein"]

_NAMES = ("x", "y", "x_weights", "y_weights")


def _torch() -> Any:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            "torch is not installed, expected it for torch tensors: pip install torch, or pass numpy or jax arrays "
            "to sliced_wasserstein."
        ) from None
    return torch


def _to_array(tensor: Any) -> Any:
    """The tensor's numbers as an array of numpy's (CPU) or jax's (other devices)."""
    if tensor is None:
        return None
    tensor = tensor.detach().contiguous()
    return np.from_dlpack(tensor) if tensor.device.type == "cpu" else jax.dlpack.from_dlpack(tensor)


def _to_tensor(torch: Any, array: Any, like: Any) -> Any:
    if isinstance(array, np.ndarray | np.generic):
        return torch.from_numpy(np.ascontiguousarray(array)).to(like.dtype)
    return torch.from_dlpack(array).to(like.dtype)


@lru_cache(maxsize=1)
def _function() -> Any:
    """The node of torch's graph: the gradient is formed together with the value."""
    torch = _torch()

    class SlicedWasserstein(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, x_weights: Any, y_weights: Any, options: Fields) -> Any:
            tensors = (x, y, x_weights, y_weights)
            wrt = tuple(name for name, need in zip(_NAMES, ctx.needs_input_grad, strict=False) if need)
            arrays = dict(zip(_NAMES, map(_to_array, tensors), strict=True))
            found = sliced_gradient(**arrays, wrt=wrt, **options)
            ctx.gradients = tuple(
                None if part is None else _to_tensor(torch, part, tensor)
                for part, tensor in zip(found[1:], tensors, strict=True)
            )
            return _to_tensor(torch, np.asarray(found.value) if x.device.type == "cpu" else found.value, x)

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            # A batch has one slope for each problem.
            scaled = [None if g is None else slope.reshape(slope.shape + (1,) * (g.ndim - slope.ndim)) * g
                      for g in ctx.gradients]  # fmt: skip
            return *scaled, None

    return SlicedWasserstein


def torch_sliced_wasserstein(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    n_projections: int | None = None,
    *,
    root: bool = False,
    **options: Any,
) -> Any:
    r"""Return SW_p^p of torch tensors as a tensor that `backward()` goes through, for points and weights.

    `x` and `y` are tensors `[n, d]` and `[m, d]` (or a batch `[..., n, d]`), `a` and `b` their weights; `options` as in
    `sliced_gradient`: `seed` or `key`, `num_slices`, `order` or `p`, `slices`. With `root` the result is SW_p, whose
    gradient is zero where the distance is. There is no interval and no second derivative here.

    Raises:
        InputError: Where torch is not installed, or for what `sliced_gradient` refuses.
    """
    torch = _torch()
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{name} is {type(tensor).__name__}, expected a torch tensor: use sliced_wasserstein.")
    if isinstance(options.get("slices"), torch.Tensor):
        options["slices"] = _to_array(options["slices"])
    options = {"n_projections": n_projections, **options}
    value = _function().apply(x, y, a, b, options)
    if not root:
        return value
    order = options.get("order") or options.get("p") or 2
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, torch.ones_like(value)) ** (1 / order), 0 * value)
