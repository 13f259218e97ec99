"""Videos of episodes: pictures of the task with the costs counting up beside them, as GIF or MP4."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from awavo.errors import InputError
from awavo.files import write_bytes
from awavo.results.outcome import format_number

__all__ = ["SHOTS", "Film", "Picture", "Shot", "Totals", "compose", "encode_png", "find_ffmpeg", "save_video"]

Picture = UInt8[np.ndarray, "h w 3"]

SHOTS = 60  # of a film at least, where its episode has as many steps, and twice as many at most
HEIGHT, PANEL = 360, 270  # pixels of a frame, and the width of the panel beside the picture
FASTEST, SLOWEST = 30, 8  # frames a second
MOST_BYTES = 3_000_000  # of a GIF; a longer one gets fewer frames
INK, MUTED, LINE, OK, BAD = "#16202c", "#55616f", "#dde3ea", "#0b62c4", "#b3261e"
NO_FFMPEG = "an mp4 needs ffmpeg, which is not installed: pip install 'awavo[render]', or use --video gif."


class Shot(NamedTuple):
    """The picture before a step."""

    step: int
    picture: Picture


class Film:
    """Pictures of an episode whose length nobody knows beforehand.

    Steps are filmed until there are `2 * SHOTS`; then every second picture goes, and every second step is left out.
    """

    def __init__(self) -> None:
        self.shots: list[Shot] = []
        self._stride = 1

    def wants(self, step: int) -> bool:
        """Whether the picture before this step is needed."""
        return step % self._stride == 0

    def add(self, step: int, picture: Picture) -> None:
        """Keep the picture before a step."""
        self.shots.append(Shot(step, picture))
        if len(self.shots) > 2 * SHOTS:
            self.shots = self.shots[::2]
            self._stride *= 2


class Totals(NamedTuple):
    """What the panel shows: totals so far, before each step and after the last one."""

    returns: Sequence[float]  # [T + 1]
    costs: Mapping[str, Sequence[float]]  # each [T + 1]
    limits: Mapping[str, float]

    @classmethod
    def of(
        cls, rewards: Sequence[float], costs: Sequence[Sequence[float]], names: Sequence[str], limits: Sequence[float]
    ) -> Totals:
        """Add up rewards `[T]` and costs `[T, C]`."""
        summed = np.cumsum(np.asarray(costs, float).reshape(len(rewards), len(names)), 0)
        columns = np.concatenate([np.zeros((1, len(names))), summed])
        returns = [0.0, *np.cumsum(rewards).tolist()]
        return cls(returns, dict(zip(names, columns.T.tolist(), strict=True)), dict(zip(names, limits, strict=True)))


def save_video(
    shots: Sequence[Shot], totals: Totals, out: Path, *, title: str, step_s: float, steps: int | None = None
) -> Path:
    """Write the film with its panel as .gif or .mp4; it lasts as long as the episode, or is speeded up and says so."""
    steps = len(totals.returns) - 1 if steps is None else steps
    if out.suffix == ".mp4":
        rate, speed = _pace(len(shots), steps * step_s)
        frames = [compose(shot, totals, title, step_s, speed) for shot in shots]
        _write_mp4(frames, out, rate)
        return out
    payload = b""
    while True:
        rate, speed = _pace(len(shots), steps * step_s)
        payload = _gif([compose(shot, totals, title, step_s, speed) for shot in shots], rate)
        if len(payload) <= MOST_BYTES or len(shots) < 4:
            break
        shots = shots[::2]
    write_bytes(out, payload)
    return out


def compose(
    shot: Shot, totals: Totals, title: str, step_s: float, speed: float = 1.0, at: int | None = None
) -> Image.Image:
    """One frame: the picture, and beside it the time, the return and each cost against its limit.

    The totals are those before the shot's step, or `at` another one.
    """
    step = shot.step if at is None else at
    picture = Image.fromarray(shot.picture)
    width = max(2, round(picture.width * HEIGHT / picture.height))
    width = min(width, 2 * HEIGHT)
    picture = picture.resize((width, round(width * picture.height / picture.width)), Image.Resampling.LANCZOS)
    frame = Image.new("RGB", ((width + PANEL + 1) // 2 * 2, HEIGHT), "white")
    frame.paste(picture, (0, (HEIGHT - picture.height) // 2))
    draw = ImageDraw.Draw(frame)
    draw.line([(width, 0), (width, HEIGHT)], LINE)
    left, right, y = width + 16, frame.width - 16, 14
    draw.text((left, y), _fit(title, right - left, 14), INK, _font(14))
    pace = "" if 0.8 < speed < 1.25 else f", {speed:.2g}× speed"
    y += 24
    draw.text((left, y), f"step {step}, {step * step_s:.1f} s{pace}", MUTED, _font(12))
    y += 24
    draw.text((left, y), f"return {format_number(totals.returns[step], _largest(totals.returns))}", INK, _font(15))
    y += 36
    room = min(62, (HEIGHT - y - 8) // max(1, len(totals.costs)))
    for name, sums in totals.costs.items():
        _bar(draw, name, sums, step, totals.limits[name], (left, y, right), room)
        y += room
    return frame


def _bar(
    draw: ImageDraw.ImageDraw, name: str, sums: Sequence[float], step: int, limit: float,
    place: tuple[int, int, int], room: int,
) -> None:  # fmt: skip
    """A cost so far as a bar, red above its limit, with the limit as a mark and the numbers in words."""
    left, y, right = place
    value, end = sums[step], max(abs(limit), max(map(abs, sums)), 1e-9) * 1.15
    above, scale = value > limit, (right - left) / end
    colour = BAD if above else OK
    small = room < 40
    numbers = f"{format_number(value, limit or 1.0)} / limit {limit:g}{' ✗' if above else ''}"
    draw.text((left, y), _fit(name, (right - left) // 2, 12), INK, _font(12))
    draw.text((right, y), numbers, colour if above else MUTED, _font(12), anchor="ra")
    if small:
        return
    top, bottom = y + 20, y + 34
    draw.rectangle([left, top, right, bottom], "#eef1f5")
    if value > 0:
        draw.rectangle([left, top, left + max(1, round(value * scale)), bottom], colour)
    if limit >= 0:
        mark = left + round(limit * scale)
        draw.line([(mark, top - 4), (mark, bottom + 4)], BAD, 2)


def encode_png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _pace(count: int, seconds: float) -> tuple[int, float]:
    """Frames a second, and how many times as fast as the task the video then runs."""
    rate = round(min(max(count / max(seconds, 1e-6), SLOWEST), FASTEST))
    return rate, seconds * rate / max(count, 1)


def _gif(frames: Sequence[Image.Image], rate: int) -> bytes:
    # One palette for all frames: what does not change is then stored once.
    sample = Image.new("RGB", (frames[0].width, HEIGHT * 3))
    for i, k in enumerate((0, len(frames) // 2, len(frames) - 1)):
        sample.paste(frames[k], (0, i * HEIGHT))
    palette = sample.quantize(128, Image.Quantize.MEDIANCUT)
    plain = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    pause = [round(1000 / rate)] * len(plain)
    pause[-1] = 1500  # the totals can be read before it starts again
    plain[0].save(buffer, "GIF", save_all=True, append_images=plain[1:], duration=pause, loop=0, optimize=False)
    return buffer.getvalue()


def find_ffmpeg() -> str:
    """The program that writes MP4: ffmpeg on the path, or the one that imageio-ffmpeg brings."""
    found = shutil.which("ffmpeg")
    if found is None:
        try:
            import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

            found = imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError) as error:
            raise InputError(NO_FFMPEG) from error
    return found


def _write_mp4(frames: Sequence[Image.Image], out: Path, rate: int) -> None:
    size = f"{frames[0].width}x{frames[0].height}"
    partial = out.with_name(f".{out.stem}.partial.mp4")
    command = [
        *(find_ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size),
        *("-r", str(rate), "-i", "-", "-an", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(partial)),
    ]
    try:
        done = subprocess.run(command, input=b"".join(f.tobytes() for f in frames), capture_output=True, check=False)
        if done.returncode:
            reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
            raise InputError(f"ffmpeg could not write '{out}' ({reason}): use --video gif.")
        write_bytes(out, partial.read_bytes())
    finally:
        partial.unlink(missing_ok=True)


@lru_cache(maxsize=8)
def _font(size: int) -> Any:
    """The font that matplotlib brings, so that a video looks the same everywhere."""
    from matplotlib import get_data_path

    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _fit(text: str, width: int, size: int) -> str:
    """The text, cut to a width in pixels."""
    text = "".join(c if c.isprintable() else " " for c in text)[:200]
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def _largest(values: Sequence[float]) -> float:
    finite = [abs(v) for v in values if math.isfinite(v)]
    return max(finite, default=1.0) or 1.0
