"""Arrays as JSON and back, bit by bit: a type, a shape, and the bytes in base64. Nothing in a file is ever run."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from awavo.checks import all_finite
from awavo.errors import InputError

__all__ = ["MAX_BYTES", "checked_array", "pack_array", "unpack_array"]

DTYPES = ("float32", "float64", "int32", "uint32", "bool")
MAX_BYTES = 64 * 2**20


def pack_array(array: ArrayLike) -> dict[str, object]:
    """Return a JSON object that holds the array."""
    values = np.asarray(array)
    if values.dtype.name not in DTYPES:
        raise InputError(f"an array of {values.dtype} cannot be logged: expected one of {', '.join(DTYPES)}.")
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False)).tobytes()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "data": base64.b64encode(data).decode()}


def unpack_array(packed: Any) -> np.ndarray:
    """Return the array of `pack_array`, or refuse what is none."""
    try:
        dtype, shape, data = packed["dtype"], packed["shape"], base64.b64decode(packed["data"], validate=True)
        if dtype not in DTYPES or len(shape) > 8 or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"dtype {dtype!r}, shape {shape!r}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size != len(data) or size > MAX_BYTES:
            raise ValueError(f"{len(data)} bytes for shape {shape!r}")
    except (TypeError, KeyError, ValueError, OverflowError, binascii.Error) as error:
        raise InputError(f"an array of the log cannot be read ({error}).") from error
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype)


def checked_array(
    name: str, packed: Any, shape: tuple[int, ...], dtype: str = "float32", *, finite: bool = True
) -> np.ndarray:
    """Return the array, which must have this shape and type and, unless told otherwise, hold finite numbers."""
    array = unpack_array(packed)
    if array.shape != shape or array.dtype != dtype:
        raise InputError(f"{name} is {array.dtype} {list(array.shape)}, expected {dtype} {list(shape)}.")
    if finite and not all_finite(array):
        raise InputError(f"{name} is not finite.")
    return array
