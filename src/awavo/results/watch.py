"""A live page of a run folder: curves, limits, speed and the latest video while another process trains into it.

The server reads the folder's files, writes nothing into it, listens on this machine alone and answers nobody who calls
it by another name: a web page that points its own host name at this machine gets nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from awavo.errors import InputError, RunFolderError
from awavo.results.charts import LOOK, curve_chart
from awavo.results.curves import learning_curve, training_curve
from awavo.results.episode_video import read_media
from awavo.results.limits import STRICT
from awavo.results.outcome import outcome_of
from awavo.results.page import frame, render
from awavo.results.store import RunData, load_run, read_config, to_plain
from awavo.types import Fields

__all__ = ["Watch", "read_progress"]

HOST = "127.0.0.1"
FILES = ("config.json", "metrics.parquet", "episodes.parquet", "evaluation.json")
POINTS = 160
POLL_SECONDS = 0.1  # how soon it notices that it shall end
QUIET_S = 60  # seconds without a new file after which a training that holds no lock has stopped


class Watch:
    """The page of one run folder and the server that shows it. Use it as a context, or `close` it.

    Args:
        folder: Run folder, of a training that runs or has run.
        port: Port on this machine (0: any that is free).
        videos: A second folder to look for a video in, before the run's own.
    """

    def __init__(self, folder: str | os.PathLike[str], *, port: int = 0, videos: Path | None = None):
        self.folder, self.videos = Path(folder), videos
        read_config(self.folder)  # refuses what is no run folder
        try:
            self._server = _Server((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"port {port} cannot be used ({error}): give another --port, or 0 for any.") from error
        self._server.watch = self
        self._thread: threading.Thread | None = None
        self.note = ""

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/"

    def start(self) -> Watch:
        """Serve from a thread of its own and return at once."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def data(self) -> Fields:
        """What the page shows now."""
        found = read_progress(self.folder)
        media = self.media()
        found["video"] = (
            None if media is None else {"kind": media[0], "mark": hashlib.sha256(media[1]).hexdigest()[:16]}
        )
        found["note"] = found.get("note") or self.note
        return found

    def media(self) -> tuple[str, bytes] | None:
        """Kind and bytes of the newest video."""
        folders = [self.folder] if self.videos is None else [self.videos, self.folder]
        return next((found for folder in folders if (found := read_media(folder)) is not None), None)


def read_progress(folder: Path) -> Fields:
    """Title, state, steps, speed, latest figures and charts of a run folder; tables are read again when they change."""
    marks = tuple(_mark(folder / name) for name in FILES)
    found = _read(folder, marks)
    done, total = found["env_steps"], found["total_steps"]
    return {**found, "total_steps": max(done, total), "state": _state(folder, done, total)}


@lru_cache(maxsize=4)
def _read(folder: Path, marks: tuple[Any, ...]) -> Fields:
    meta, _ = read_config(folder)
    config, options = meta["config"], meta["config"].get("algo_options") or {}
    # Training stops after whole iterations; where sizes were left to the rule, the steps asked for must do.
    per_iteration = max(1, (options.get("num_envs") or 1) * (options.get("rollout_length") or 1))
    steps = int(config.get("steps") or 0)
    found: Fields = {
        "title": f"{config['task']} · {config['algo']}",
        "env_steps": 0,
        "total_steps": -(-steps // per_iteration) * per_iteration,
        "seeds": int(config.get("seeds", 1)),
        "charts": [],
        "figures": [],
        "steps_per_second": None,
        "left_s": None,
    }
    if not (folder / "metrics.parquet").is_file():
        return found | {
            "note": "Nothing is saved yet: tables are written with each checkpoint, about every 20 seconds."
        }
    try:
        run = load_run(folder)
        return found | _figures(run, found["total_steps"])
    except RunFolderError as error:
        return found | {"note": str(error)}


def _figures(run: RunData, total: int) -> Fields:
    metrics = run.metrics
    speed = None
    if "time/steps_per_second" in metrics.columns and metrics.height:
        recent = metrics.sort("env_steps")["time/steps_per_second"].tail(20 * max(1, len(run.seeds)))
        speed = float(np.mean(recent.drop_nulls().to_numpy() if recent.null_count() < len(recent) else [0.0]))
    left = None if speed is None or not speed > 0 else max(0, total - run.env_steps) * max(1, len(run.seeds)) / speed
    names = ["return", *(f"cost_{name}" for name in run.cost_names)]
    limits = [None, *run.cost_limits]
    curves = {name: learning_curve(run, name, points=POINTS) for name in names}
    charts, figures = [], []
    for name, limit in zip(names, limits, strict=True):
        title = "Return" if name == "return" else f"Cost: {name.removeprefix('cost_')}"
        charts.append(curve_chart(name, title, [(run.label, LOOK, curves[name])]))
        value = next((float(v) for v in curves[name].centre[::-1] if v == v), None)
        figures.append({"name": title, "value": value, "limit": limit})
    if "time/steps_per_second" in metrics.columns:
        speeds = training_curve(run, "time/steps_per_second")
        charts.append(curve_chart("speed", "Steps a second", [(run.label, LOOK, speeds)]))
    judged = None
    if run.evaluation is not None:
        outcome = outcome_of(run, "greedy", STRICT)
        judged = {"within": outcome.is_within, "seeds": f"{outcome.feasible_seeds} of {len(outcome.seeds)}"}
    return {
        "env_steps": run.env_steps,
        "steps_per_second": speed,
        "left_s": left,
        "charts": charts,
        "figures": figures,
        "evaluated": judged,
    }


def _state(folder: Path, env_steps: int, total: int) -> str:
    """Whether training is finished, seems to run, or has stopped."""
    if total and env_steps >= total:
        return "finished"
    newest = max((mark[0] for name in FILES if (mark := _mark(folder / name)) is not None), default=0)
    is_fresh = time.time() - newest / 1e9 < QUIET_S
    return "training" if is_fresh or _is_held(folder) else "stopped"


def _is_held(folder: Path) -> bool:
    """Whether a process holds the folder's lock, as Linux tells it.

    To try the lock would take it for a moment, and refuse a training that starts just then.
    """
    try:
        places = {str(path.stat().st_ino) for path in (folder, folder / ".lock") if path.exists()}
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    held = [line.split() for line in lines if "FLOCK" in line and "WRITE" in line]
    return any(place in places for words in held for word in words if (place := word.rpartition(":")[2]))


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    except OSError:
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    watch: Watch

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that hung up in the middle of an answer; anything else is a fault."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page, its data and its video; nothing else."""

    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "awavo", ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """Answer with a page, or say why not."""
        watch = self.server.watch
        if self.headers.get("Host", "") not in (f"{HOST}:{watch.port}", f"localhost:{watch.port}"):
            return self._send(403, "text/plain", b"this page is for this machine alone\n")
        path = urlsplit(self.path).path
        try:
            if path == "/":
                return self._send(200, "text/html; charset=utf-8", _page(watch).encode())
            if path == "/data.json":
                text = json.dumps(to_plain(watch.data()), allow_nan=False, separators=(",", ":"))
                return self._send(200, "application/json", text.encode())
            media = watch.media() if path == "/video" else None
        except RunFolderError as error:
            return self._send(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        if media is None:
            return self._send(404, "text/plain", b"there is nothing here\n")
        return self._send(200, media[0], media[1])

    do_HEAD = do_GET

    def _send(self, code: int, kind: str, content: bytes) -> None:
        mark = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if code == 200 and self.headers.get("If-None-Match") == mark:
            code, content = 304, b""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("ETag", mark)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # the reader left
                self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on the terminal."""


def _page(watch: Watch) -> str:
    meta, _ = read_config(watch.folder)
    config = meta["config"]
    parts = frame("chart.js", "chart_events.js", "watch.js", media="'self' data:")
    parts["policy"] = f"{parts['policy']}; connect-src 'self'"
    names, bounds = meta["spec"]["cost_names"], meta["spec"]["cost_limits"]
    return render(
        "watch.html", title=f"{config['task']} · {config['algo']}", folder=str(watch.folder),
        limits=", ".join(f"{name} ≤ {bound:g}" for name, bound in zip(names, bounds, strict=True)), **parts,
    )  # fmt: skip
