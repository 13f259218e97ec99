"""Pictures of MuJoCo simulations: by MuJoCo's own renderer where the machine has OpenGL off screen, else drawn plainly.

Shadows, reflections and smoothed edges are off: without a graphics card they take seconds a frame, without them 20 ms.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from awavo.tasks.mujoco_host import load_mujoco

if TYPE_CHECKING:
    from PIL import ImageDraw

__all__ = ["Painter", "draw_bodies"]

Picture = UInt8[np.ndarray, "h w 3"]

WIDTH, HEIGHT, FINE = 480, 360, 2
PLATFORMS = ("egl", "osmesa")
MOST_GEOMS = 2000
SKY, FLOOR = "#f3f7fb", "#c9d2dc"


class Painter:
    """Draws the simulations of one model; `close` frees the graphics memory."""

    def __init__(self, model: Any):
        self._model = model
        self._screen = _Screen.open(model)

    @property
    def by_mujoco(self) -> bool:
        """Whether MuJoCo's renderer draws, or the plain drawing."""
        return self._screen is not None

    def paint(self, data: Any) -> Picture:
        """The simulation as it is now."""
        return draw_bodies(self._model, data) if self._screen is None else self._screen.paint(data)

    def close(self) -> None:
        """Free the graphics memory."""
        if self._screen is not None:
            self._screen.close()


class _Screen:
    """MuJoCo's renderer on an OpenGL context without a window."""

    def __init__(self, model: Any, platform: str):
        self._mujoco = mujoco = load_mujoco("drawing")
        self._model = model
        self._context = importlib.import_module(f"mujoco.{platform}").GLContext(WIDTH, HEIGHT)
        try:
            self._context.make_current()
            quality, screen = model.vis.quality, model.vis.global_
            kept = quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight
            quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = 0, 0, WIDTH, HEIGHT
            self._gl = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
            quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = kept
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._gl)
            self._scene = mujoco.MjvScene(model, MOST_GEOMS)
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._scene.flags[flag] = 0
            self._camera = _camera(mujoco, model)
            self._options = mujoco.MjvOption()
        except BaseException:
            self._context.free()
            raise

    @classmethod
    def open(cls, model: Any) -> _Screen | None:
        """A screen of the platform in MUJOCO_GL, or of the first that works; None where there is none."""
        wanted = os.environ.get("MUJOCO_GL", "").lower()
        for platform in [wanted] if wanted else PLATFORMS:
            # Whatever a missing or broken driver raises: there is a plain drawing.
            with contextlib.suppress(Exception):
                return cls(model, platform)
        return None

    def paint(self, data: Any) -> Picture:
        mujoco, area = self._mujoco, self._mujoco.MjrRect(0, 0, WIDTH, HEIGHT)
        self._context.make_current()
        catch = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, catch, self._scene)
        mujoco.mjr_render(area, self._scene, self._gl)
        pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, area, self._gl)
        return pixels[::-1].copy()

    def close(self) -> None:
        self._gl.free()
        self._context.free()


def _camera(mujoco: Any, model: Any) -> Any:
    """The model's own camera, or one that follows the first body."""
    camera = mujoco.MjvCamera()
    if model.ncam:
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED.value, 0
        return camera
    camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING.value, min(1, model.nbody - 1)
    camera.distance, camera.elevation, camera.azimuth = 2.5 * model.stat.extent, -20.0, 110.0
    return camera


def draw_bodies(model: Any, data: Any) -> Picture:
    """The bodies from their places: capsules as thick lines, spheres as discs, seen from the side and a little above.

    A model that stays in a level plane (a swimmer) is seen from above.
    """
    from PIL import Image, ImageDraw

    mujoco = load_mujoco("drawing")
    kinds = mujoco.mjtGeom
    ground = {int(kinds.mjGEOM_PLANE), int(kinds.mjGEOM_HFIELD)}
    long_ones = {int(kinds.mjGEOM_CAPSULE), int(kinds.mjGEOM_CYLINDER)}
    ends, radii, colours = [], [], []
    for i in range(model.ngeom):
        kind, size = int(model.geom_type[i]), model.geom_size[i]
        if kind in ground or model.geom_rgba[i, 3] == 0:
            continue
        long = kind in long_ones
        half = data.geom_xmat[i].reshape(3, 3)[:, 2] * (size[1] if long else 0.0)
        ends.append((data.geom_xpos[i] - half, data.geom_xpos[i] + half))
        radii.append(float(size[0] if long else size.max()))
        colours.append("#" + bytes((255 * np.clip(model.geom_rgba[i, :3], 0, 0.85)).astype(np.uint8)).hex())
    image = Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT), SKY)
    draw = ImageDraw.Draw(image)
    if ends:
        _draw_geoms(draw, np.asarray(ends), radii, colours, _stays_level(mujoco, model))
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


def _stays_level(mujoco: Any, model: Any) -> bool:
    """Whether every joint turns about a vertical axis or slides along a horizontal one."""
    kinds, upright = mujoco.mjtJoint, np.abs(model.jnt_axis[:, 2]) > 0.5
    turns, slides = (model.jnt_type == int(kind) for kind in (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE))
    return bool(model.njnt) and bool(((turns & upright) | (slides & ~upright)).all())


def _draw_geoms(
    draw: ImageDraw.ImageDraw, ends: np.ndarray, radii: list[float], colours: list[str], flat: bool
) -> None:
    points = ends.reshape(-1, 3)
    extent = np.ptp(points, 0)
    lean = np.pi / 2 if flat else 0.15
    # To the right, and up the picture; what lies behind is drawn first.
    project = np.array([[1.0, 0.0, 0.0], [0.0, np.sin(lean), np.cos(lean)]])
    reach = max(float(extent.max()), 4 * max(radii), 1.0)
    scale = FINE * WIDTH / (2.6 * reach)
    centre = project @ np.array([points[:, 0].mean(), points[:, 1].mean(), 0.0 if flat else 0.45 * reach])

    def place(point: np.ndarray) -> tuple[float, float]:
        x, y = project @ point - centre
        return FINE * WIDTH / 2 + scale * float(x), FINE * HEIGHT / 2 - scale * float(y)

    if not flat:
        floor = place(np.array([0.0, float(points[:, 1].mean()), 0.0]))[1]
        draw.rectangle([0, floor, FINE * WIDTH, FINE * HEIGHT], FLOOR)
    # Marks every metre: without them nothing seems to move.
    first = float(points[:, 0].mean())
    for metre in range(int(first - 2 * reach) - 1, int(first + 2 * reach) + 2):
        x, y = place(np.array([float(metre), float(points[:, 1].mean()), 0.0]))
        ends_y = (0, FINE * HEIGHT) if flat else (y, y + 8 * FINE)
        draw.line([(x, ends_y[0]), (x, ends_y[1])], "#9aa7b5", FINE)
    for i in np.argsort(-ends.mean(1)[:, 1]):
        (x0, y0), (x1, y1), r = place(ends[i, 0]), place(ends[i, 1]), radii[i] * scale
        draw.line([(x0, y0), (x1, y1)], colours[i], max(1, round(2 * r)))
        for x, y in ((x0, y0), (x1, y1)):
            draw.ellipse([x - r, y - r, x + r, y + r], colours[i])
