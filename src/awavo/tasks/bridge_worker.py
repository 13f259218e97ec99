"""The far end of the bridge: one environment in an interpreter of its own.

Run by path, never as part of the package: it needs Python 3.8 or newer, numpy and the environment's own package, no
more. Frames go over the parent's pipes: a little-endian length, a JSON header, the raw arrays that the header names.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # The folder of this file comes first on the path and holds a `gymnasium.py` that is not Gymnasium.
    sys.path.pop(0)

import importlib
import json
import os
import signal
import struct
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

__all__ = ["Session", "decode_frame", "encode_frame", "flatten", "flat_size", "main"]

if TYPE_CHECKING:
    Header = dict[str, Any]  # whatever JSON holds

# The only types that travel, and bounds on what a broken length may make the reader allocate.
DTYPES = ("<f4", "<i8")
MAX_HEADER = 1 << 20
MAX_FRAME = 1 << 26
MAX_ARRAYS = 16


def encode_frame(header: Header, arrays: dict[str, np.ndarray] | None = None) -> bytes:
    """Header and arrays as one frame; floats travel as float32, integers as int64."""
    named = []
    body = []
    for name, array in (arrays or {}).items():
        array = np.asarray(array)
        array = array.astype("<f4" if array.dtype.kind == "f" else "<i8")
        named.append([name, array.dtype.str, list(array.shape)])
        body.append(array.tobytes())
    text = json.dumps(dict(header, arrays=named)).encode()
    return b"".join([struct.pack("<I", len(text)), text, *body])


def decode_frame(read: Callable[[int], bytes]) -> tuple[Header, dict[str, np.ndarray]]:
    """Read one frame with `read(n)`, which returns exactly n bytes or raises."""
    (length,) = struct.unpack("<I", read(4))
    if length > MAX_HEADER:
        raise ValueError(f"frame header of {length} bytes, expected at most {MAX_HEADER}")
    try:
        header = json.loads(read(length).decode())
    except RecursionError:
        raise ValueError("frame header of lists in lists without end") from None
    named = header.pop("arrays", None) if isinstance(header, dict) else None
    if not isinstance(named, list) or len(named) > MAX_ARRAYS:
        raise ValueError("frame header that is no table with a list of arrays")
    # All of them are looked at before the first is read.
    sizes = [_array_size(entry) for entry in named]
    if sum(sizes) > MAX_FRAME:
        raise ValueError(f"frame of {sum(sizes)} bytes, expected at most {MAX_FRAME}")
    arrays = {}
    for (name, dtype, shape), size in zip(named, sizes):  # noqa: B905
        arrays[name] = np.frombuffer(read(size), dtype).reshape(shape).copy()
    return header, arrays


def _array_size(entry: object) -> int:
    """Bytes of an array that a header names, or ValueError where the entry is none."""
    name, dtype, shape = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    named = isinstance(name, str) and dtype in DTYPES
    if not named or not isinstance(shape, list) or len(shape) > 4 or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"array {entry!r:.100} is not allowed")
    size = 4 if dtype == "<f4" else 8
    for side in shape:
        size *= side
    return size


def flat_size(space: Any) -> int:
    """Length of the flattened observation of a space, of whichever version of gym."""
    kind = type(space).__name__
    if kind == "Dict":
        return sum(flat_size(s) for s in space.spaces.values())
    if kind == "Tuple":
        return sum(flat_size(s) for s in space.spaces)
    if kind == "Discrete":
        return int(space.n)
    if kind not in ("Box", "MultiBinary"):
        raise ValueError(f"observation space {kind} cannot be flattened, expected Box, Discrete, Dict or Tuple")
    if len(space.shape) > 2:
        raise ValueError(f"observation space holds an image {space.shape}, expected a vector")
    return int(np.prod(space.shape))


def flatten(space: Any, obs: Any) -> np.ndarray:
    """The observation as one float32 vector."""
    kind = type(space).__name__
    if kind == "Dict":
        parts = [flatten(s, obs[k]) for k, s in space.spaces.items()]
    elif kind == "Tuple":
        parts = [flatten(s, o) for s, o in zip(space.spaces, obs)]  # noqa: B905
    elif kind == "Discrete":
        return np.eye(int(space.n), dtype=np.float32)[int(obs) - int(getattr(space, "start", 0))]
    else:
        return np.asarray(obs, np.float32).ravel()
    return np.concatenate(parts)


def describe_actions(space: Any) -> Header:
    """The action space in plain values."""
    kind = type(space).__name__
    if kind == "Discrete":
        return {"kind": "discrete", "n": int(space.n), "start": int(getattr(space, "start", 0))}
    if kind != "Box":
        raise ValueError(f"action space is {kind}, expected Discrete or Box")
    return {"kind": "box", "low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}


def number_entries(info: dict[str, object], prefix: str) -> dict[str, float | list]:
    """The entries of `info` whose name begins so, where they are numbers, as numbers and lists."""
    found = {}
    for key, value in info.items():
        if isinstance(key, str) and key.startswith(prefix):
            try:
                array = np.asarray(value)
            except ValueError:  # lists of different lengths
                continue
            if array.dtype.kind in "biuf":
                found[key] = array.astype(np.float64).tolist()
    return found


class Session:
    """One environment and the requests about it."""

    def make(self, header: Header, _: object) -> bytes:
        """Build the environment, take one step, and describe what it offers."""
        sys.path[:0] = header["path"]
        module = importlib.import_module(header["module"])
        make = getattr(module, "make", None) or importlib.import_module("gymnasium").make
        self.env = make(header["id"], **header["options"])
        spec = getattr(self.env, "spec", None)
        self.limit = header["horizon"]
        # A cost function of the user's may ask for all numbers in `info`.
        self.prefix = "" if header.get("all_info") else "cost"
        self.time = 0
        offer = {
            "obs_dim": flat_size(self.env.observation_space),
            "action": describe_actions(self.env.action_space),
            "horizon": self.limit or getattr(spec, "max_episode_steps", None),
        }
        self.env.action_space.seed(0)
        obs = self._reset(0)
        action = self.env.action_space.sample()
        next_obs, _, _, _, offer["costs"] = self._step(action)
        shown = np.asarray(action).ravel() if offer["action"]["kind"] == "box" else np.asarray(action)
        return encode_frame(offer, {"obs": obs, "action": shown, "next_obs": next_obs})

    def reset(self, header: Header, _: object) -> bytes:
        """Start an episode."""
        return encode_frame({}, {"obs": self._reset(header["seed"])})

    def step(self, _: object, arrays: dict[str, np.ndarray]) -> bytes:
        """Step, and start the next episode where this one ends."""
        action, space = arrays["action"], self.env.action_space
        if type(space).__name__ == "Discrete":
            action = action.item()
        else:  # float32 rounds the bounds of a box of float64, to either side of them
            action = np.clip(action.astype(space.dtype).reshape(space.shape), space.low, space.high)
        final_obs, reward, terminated, truncated, costs = self._step(action)
        done = terminated or truncated
        header = {"reward": float(reward), "terminated": terminated, "truncated": truncated, "costs": costs}
        return encode_frame(header, {"obs": self._reset(None) if done else final_obs, "final_obs": final_obs})

    def _reset(self, seed: int | None) -> np.ndarray:
        self.time = 0
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        obs = result[0] if isinstance(result, tuple) and len(result) == 2 else result
        return flatten(self.env.observation_space, obs)

    def _step(self, action: object) -> tuple[np.ndarray, float, bool, bool, dict[str, float | list]]:
        result = self.env.step(action)
        if len(result) not in (5, 6):
            raise ValueError(f"step() returned {len(result)} values, expected 5 or Safety-Gymnasium's 6")
        info = dict(result[-1], cost=result[2]) if len(result) == 6 else result[-1]
        self.time += 1
        truncated = bool(result[-2]) or (self.limit is not None and self.time >= self.limit)
        obs = flatten(self.env.observation_space, result[0])
        return obs, float(result[1]), bool(result[-3]), truncated, number_entries(info, self.prefix)


def _end_group() -> None:
    """End what the environment started, which would outlive this process; the bridge made it lead a group."""
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints or reads must not meet the frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    session = Session()

    def read(size: int) -> bytes:
        data = requests.read(size)
        if len(data) != size:
            raise EOFError
        return data

    while True:
        try:
            header, arrays = decode_frame(read)
        except EOFError:
            return _end_group()
        try:
            reply = getattr(session, {"make": "make", "reset": "reset", "step": "step"}[header["request"]])(
                header, arrays
            )
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            reply = encode_frame({"error": f"{type(error).__name__}: {error}"})
        replies.write(reply)
        replies.flush()


if __name__ == "__main__":
    main()
