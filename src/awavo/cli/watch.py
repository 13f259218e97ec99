"""`awavo watch`: a live page of a run folder, on this machine alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from awavo.checks import check_range
from awavo.cli.common import Trust
from awavo.runs.progress import stop_showing

if TYPE_CHECKING:
    from awavo.results.watch import Watch as LivePage

__all__ = ["Watch"]

LOOK_EVERY = 1.0  # seconds between two looks for a new checkpoint


@dataclass
class Watch:
    """Options of `awavo watch`."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN", help="run folder, of a training that runs or has run")]
    port: Annotated[int, arg(help="port on this machine (0: any that is free)")] = 0
    video_every: Annotated[float, arg(help="seconds between videos of the newest checkpoint (0: make none)")] = 60.0
    open: Annotated[bool, arg(help="open the page in a browser")] = False
    trust: Trust = False

    def run(self) -> int:
        """Serve the page until Ctrl-C."""
        from awavo.results.watch import Watch as LivePage

        check_range("--port", self.port, 0, 65_535)
        check_range("--video-every", self.video_every, 0, 1e9)
        with tempfile.TemporaryDirectory(prefix="awavo-watch-") as made:
            page = LivePage(self.run_folder, port=self.port, videos=Path(made))
            over = threading.Event()
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
            stop_showing()
            with page:
                print(f"{page.url}  (Ctrl-C ends it)", flush=True)
                if self.open:
                    webbrowser.open(page.url)
                maker = threading.Thread(target=self._make_videos, args=(page, over))
                if self.video_every:
                    maker.start()
                try:
                    while not over.wait(0.5):  # a signal may reach another thread: this one looks for it
                        pass
                except KeyboardInterrupt:
                    print("stopped watching; the training is not touched.")
                finally:
                    over.set()
                    if self.video_every:
                        maker.join()
        return 0

    def _make_videos(self, page: LivePage, over: threading.Event) -> None:
        """Render the newest checkpoint in a process of its own, whenever there is a new one."""
        from awavo.results.store import newest_checkpoint

        shown, before = None, 0.0
        while not over.wait(LOOK_EVERY):
            newest = newest_checkpoint(page.folder)
            if newest is None or newest == shown or (time.monotonic() - before < self.video_every and before):
                continue
            trust = ["--trust"] if self.trust else []
            command = [sys.executable, "-m", "awavo.cli", "render", str(page.folder), "--out", str(page.videos), *trust]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while process.poll() is None:
                if over.wait(0.2):
                    process.terminate()
            said = process.communicate()[1].strip().splitlines()
            page.note = f"No video: {said[-1]}" if process.returncode and said and not over.is_set() else ""
            shown, before = newest, time.monotonic()
