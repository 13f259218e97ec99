"""`awavo doctor`: whether everything needed is here and computes the right numbers."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass

from awavo.cli.common import Json, print_json
from awavo.runs.progress import doing

__all__ = ["Doctor", "HealthCheck", "examine", "float32_rows_are_right"]


@dataclass
class Doctor:
    """Options of `awavo doctor`."""

    json: Json = False

    def run(self) -> int:
        """Print what was looked at; exit code 1 if something needed is broken."""
        with doing("checking this machine"):
            found = examine()
        healthy = all(check.ok for check in found)
        if self.json:
            print_json({"healthy": healthy, "findings": [asdict(check) for check in found]})
        else:
            for check in found:
                print(f"{'ok  ' if check.ok else 'FAIL'} {check.name:<18} {check.detail}")
        return 0 if healthy else 1


@dataclass
class HealthCheck:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def float32_rows_are_right() -> bool:
    """A batched product that jax 0.10.2 gets wrong on CPU: the last of 32769 rows must be 32768^2 exactly."""
    import jax
    import jax.numpy as jnp

    rows = jnp.zeros((32_769, 3)).at[:, 0].set(jnp.arange(32_769.0))
    squares = jax.jit(jax.vmap(lambda r: jnp.sum((jnp.eye(3) @ r) ** 2)))(rows)
    return float(squares[-1]) == 32_768.0**2


def examine() -> list[HealthCheck]:
    """Versions, device, arithmetic, compilation cache, disk, browser."""
    from awavo.provenance import device_info, versions
    from awavo.training.compilation import cache_folder, enable_cache

    device, cache = device_info(), enable_cache()
    machine = f"{device['platform']} {device['kind']} x{device['count']}, {device['cores']} cores"
    unusable = f"{cache_folder()} cannot be used: make it yours alone (chmod 700), or set AWAVO_CACHE_DIR"
    free = shutil.disk_usage(".").free / 2**30
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    pages = "found (for tests of the report page)" if browser else "none (only tests of the report page need one)"
    return [
        *(HealthCheck(name, True, version) for name, version in versions().items()),
        HealthCheck("device", True, machine),
        HealthCheck("arithmetic", float32_rows_are_right(), "batched float32 products"),
        HealthCheck("compilation cache", cache is not None, str(cache) if cache else unusable),
        HealthCheck("disk", free > 1, f"{free:.1f} GiB free in the current folder"),
        HealthCheck("browser", True, pages),
    ]
