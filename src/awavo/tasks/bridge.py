"""Environments that need another interpreter, run in processes of that interpreter.

Safety-Gymnasium pins versions that cannot live beside jax; with `bridge_env` it stays in its own virtual environment.
Each copy of the environment has one process; plain frames go over pipes (`bridge_worker`), never pickles. POSIX only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int

from awavo.checks import LARGEST, all_usable
from awavo.errors import BrokenEnvironmentError, InputError
from awavo.tasks.bridge_worker import decode_frame, encode_frame
from awavo.tasks.cost_functions import CostFn, InfoSource, apply_cost_fn, find_info, takes_info
from awavo.tasks.host_core import CostSource, HostEnv, HostStep, find_costs, name_costs
from awavo.tasks.patience import check_timeout
from awavo.tasks.spaces import action_spec
from awavo.types import Discrete, EnvSpec

if TYPE_CHECKING:
    from awavo.tasks.bridge_worker import Header

__all__ = ["BridgeBackend", "Worker", "bridge_env"]

WORKER = Path(__file__).with_name("bridge_worker.py")
# Bytes kept of a worker's stderr, and seconds that it is given to end by itself.
TAIL = 4096
PATIENCE = 2.0
MAX_DIM = 1_000_000  # numbers of an observation, and discrete actions


class Worker:
    """One process with one environment; every failure becomes one error with the end of its stderr."""

    def __init__(self, python: str | os.PathLike[str], timeout: float):
        # The parent's package paths belong to the parent's interpreter.
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                [os.fspath(python), str(WORKER)],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(
                f"python={os.fspath(python)!r} cannot be started ({error.strerror}): give an interpreter."
            ) from error
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._timeout = timeout
        self._tail = bytearray()
        self._drain = threading.Thread(target=_keep_tail, args=(self._process.stderr, self._tail), daemon=True)
        self._drain.start()
        self.close = weakref.finalize(self, _stop, self._process)

    def send(self, request: str, arrays: Mapping[str, np.ndarray] | None = None, **fields: object) -> None:
        """Send a request; its answer is fetched by `receive`."""
        self._request = request
        left = memoryview(encode_frame({"request": request, **fields}, dict(arrays or {})))
        deadline = time.monotonic() + self._timeout
        try:
            assert self._process.stdin is not None
            stream = self._process.stdin.fileno()
            # A pipe that nobody empties takes 64 kB and then nothing.
            while left:
                _, ready, _ = select.select([], [stream], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise self._failure(f"did not take a request within {self._timeout:g} s")
                left = left[os.write(stream, left) :]
        except (OSError, ValueError) as error:
            raise self._failure("is gone") from error

    def receive(self) -> tuple[Header, dict[str, np.ndarray]]:
        """Wait for the answer to the last request."""
        deadline = time.monotonic() + self._timeout
        try:
            header, arrays = decode_frame(lambda size: self._read(size, deadline))
        except (ValueError, KeyError, TypeError) as error:
            raise self._failure(f"sent a frame that cannot be read ({error})") from error
        if "error" in header:
            raise self._failure(f"raised {' '.join(str(header['error'])[:1000].split())}", tail=False)
        return header, arrays

    def refuse(self, what: str) -> BrokenEnvironmentError:
        """Stop a process whose answer cannot be used; return the error to raise."""
        return self._failure(f"sent {what}", tail=False)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        stream, data = self._process.stdout.fileno(), bytearray()
        while len(data) < size:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure(f"did not answer within {self._timeout:g} s (raise timeout= if it is only slow)")
            chunk = os.read(stream, size - len(data))
            if not chunk:
                raise self._failure("is gone")
            data += chunk
        return bytes(data)

    def _failure(self, what: str, *, tail: bool = True) -> BrokenEnvironmentError:
        """Stop the process and put together what is known."""
        if what == "is gone":
            with contextlib.suppress(subprocess.TimeoutExpired):
                what = f"ended with exit code {self._process.wait(PATIENCE)}"
        self.close()
        self._drain.join(PATIENCE)
        lines = bytes(self._tail).decode(errors="replace").strip().splitlines()[-8:]
        said = f"; the end of its stderr: {' | '.join(lines)}" if tail and lines else ""
        return BrokenEnvironmentError(f"the bridged environment {what} during '{self._request}'{said}")


def _keep_tail(stream: IO[bytes], tail: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while chunk := stream.read(TAIL):
            tail += chunk
            del tail[:-TAIL]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started: it leaves when its input closes, and is killed when it does not."""
    with contextlib.suppress(OSError):
        process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
    # While nobody has asked for its exit code the number of the process, and so of its group, is nobody else's.
    deadline = time.monotonic() + PATIENCE
    while not _has_ended(process.pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # its exit code was asked for before
        return True


class BridgeBackend:
    """All the workers of one `HostEnv`; requests go out to all before the first answer is awaited.

    Every answer is checked: shapes, types, and that all numbers are finite.
    """

    def __init__(self, workers: Sequence[Worker], source: CostSource | InfoSource | None, obs_dim: int):
        self._workers = workers
        self._source = source
        self._obs_dim = obs_dim

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        return self.restart(np.arange(len(self._workers)), seeds)

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        workers = [self._workers[i] for i in which]
        for worker, seed in zip(workers, seeds, strict=True):
            worker.send("reset", seed=seed)
        return np.stack([self._observation(worker, worker.receive()[1], "obs") for worker in workers])

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment."""
        for worker, row in zip(self._workers, action, strict=True):
            worker.send("step", {"action": np.asarray(row)})
        answers = [self._answer(worker, *worker.receive()) for worker in self._workers]
        step = HostStep(*(None if column[0] is None else np.stack(column) for column in zip(*answers, strict=True)))  # pyright: ignore[reportArgumentType]
        return (
            step._replace(costs=None, info=self._source.unpack(step.costs))  # pyright: ignore[reportArgumentType]
            if isinstance(self._source, InfoSource)
            else step
        )

    def _answer(self, worker: Worker, header: Header, arrays: Mapping[str, np.ndarray]) -> tuple[object, ...]:
        """The fields of a `HostStep` of one environment; numbers of `info` for a cost function stand for costs."""
        reward, costs = header.get("reward"), header.get("costs")
        ends = [header.get(name) for name in ("terminated", "truncated")]
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) <= LARGEST:  # nor is NaN
            raise worker.refuse(f"the reward {reward!r:.50}, expected a finite number")
        if not all(isinstance(end, bool) for end in ends):
            raise worker.refuse(f"the ends {ends!r:.50}, expected true or false")
        if not isinstance(costs, dict) or not all(isinstance(v, int | float | list) for v in costs.values()):
            raise worker.refuse(f"the costs {costs!r:.50}, expected named numbers")
        return (
            self._observation(worker, arrays, "obs"),
            np.float32(reward),
            None if self._source is None else self._source.read(costs),
            *(np.bool_(end) for end in ends),
            self._observation(worker, arrays, "final_obs"),
        )

    def _observation(self, worker: Worker, arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        found = arrays.get(name)
        if found is None or found.shape != (self._obs_dim,) or found.dtype != np.float32:
            seen = "no array" if found is None else f"{found.dtype} {list(found.shape)}"
            raise worker.refuse(f"{seen} as {name}, expected float32 [{self._obs_dim}]")
        if not all_usable(found):
            raise worker.refuse(f"an observation ({name}) that is not finite or is beyond {LARGEST:g}")
        return found

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers:
            worker.close()


def bridge_env(
    id: str,
    *,
    python: str | os.PathLike[str],
    module: str = "safety_gymnasium",
    num_envs: int = 1,
    cost_fn: CostFn | None = None,
    cost_names: Sequence[str] | None = None,
    cost_limits: Sequence[float] | None = None,
    horizon: int | None = None,
    env_options: Mapping[str, object] | None = None,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    timeout: float = 60.0,
) -> HostEnv:
    """Build `num_envs` copies of `module.make(id)` in processes of the interpreter `python`.

    Where `module` has no `make`, it is imported for its registrations and that interpreter's `gymnasium.make` is used.
    `path` is put in front of its module path; `env_options` must be JSON. Five- and six-tuple environments both work.
    `timeout` bounds every answer, in seconds.
    """
    if num_envs < 1:
        raise InputError(f"num_envs={num_envs} must be >= 1.")
    check_timeout(timeout)
    workers: list[Worker] = []  # outside the try: those that started are closed when a later one fails
    try:
        workers += [Worker(python, timeout) for _ in range(num_envs)]
        for worker in workers:
            folders = [os.fspath(p) for p in ([path] if isinstance(path, str | os.PathLike) else path)]
            options, all_info = dict(env_options or {}), takes_info(cost_fn)
            worker.send("make", id=id, module=module, options=options, horizon=horizon, path=folders, all_info=all_info)
        answers = [worker.receive() for worker in workers]
        offer, arrays = answers[0]
        spec, start, source = _specify(id, offer, arrays, cost_fn, cost_names, cost_limits)
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    actions = spec.action_space
    act_space = spaces.Discrete(actions.num, start=start) if isinstance(actions, Discrete) else None
    return HostEnv(spec, num_envs, BridgeBackend(workers, source, spec.obs_dim), start, cost_fn, act_space=act_space)


def _offer_problem(offer: Header, arrays: Mapping[str, np.ndarray]) -> str | None:
    """What is wrong with what a worker says of its environment, if anything."""
    action, dim, horizon = offer.get("action"), offer.get("obs_dim"), offer.get("horizon")
    if not isinstance(action, dict) or action.get("kind") not in ("discrete", "box"):
        return "no action space"
    if not _is_count(dim):
        return "a length of the observation that is none"
    if action["kind"] == "discrete":
        start = action.get("start")
        if not _is_count(action.get("n")) or type(start) is not int or abs(start) > MAX_DIM:
            return "actions that are none"
    else:
        bounds = [action.get("low"), action.get("high")]
        lengths = [len(b) for b in bounds if isinstance(b, list) and all(isinstance(x, int | float) for x in b)]
        if len(lengths) != 2 or lengths[0] != lengths[1] or not lengths[0]:
            return "bounds of actions that are none"
        if not all(low <= high for low, high in zip(*bounds, strict=True)):  # nor is NaN
            return "bounds of actions of which a lower one is above the upper"
    if horizon is not None and not (type(horizon) is int and horizon > 0):
        return "a time limit that is none"
    if not isinstance(offer.get("costs"), dict):
        return "costs that are none"
    return "no first step" if {"obs", "action", "next_obs"} - set(arrays) else None


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_DIM


def _specify(
    id: str,
    offer: Header,
    arrays: Mapping[str, np.ndarray],
    cost_fn: CostFn | None,
    names: Sequence[str] | None,
    limits: Sequence[float] | None,
) -> tuple[EnvSpec, int, CostSource | InfoSource | None]:
    """Turn what the first worker said that its environment offers into a spec."""
    if problem := _offer_problem(offer, arrays):
        raise BrokenEnvironmentError(f"the bridged environment {id} offered {problem}.")
    action = offer["action"]
    space = (
        spaces.Discrete(action["n"], start=action["start"])
        if action["kind"] == "discrete"
        else spaces.Box(np.array(action["low"], np.float32), np.array(action["high"], np.float32))
    )
    actions, start = action_spec(space)
    if offer.get("horizon") is None:
        raise InputError(
            f"{id} has no time limit: pass horizon=N, the number of steps after which to truncate an episode."
        )
    source = None
    if cost_fn is None:
        source = find_costs(offer["costs"], names, None)
        costs, names = source.read(offer["costs"])[None], source.names
    else:
        source = find_info(offer["costs"]) if takes_info(cost_fn) else None
        numbers = None if source is None else source.unpack(source.read(offer["costs"])[None])
        costs = apply_cost_fn(cost_fn, arrays["obs"][None], arrays["action"][None], arrays["next_obs"][None], numbers)
    names, limits = name_costs(costs, names, limits)
    return EnvSpec(id, offer["obs_dim"], actions, offer["horizon"], names, limits), start, source
