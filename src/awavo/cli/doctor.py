"""Look whether everything needed is here and computes the right numbers."""

from __future__ import annotations

import shutil
from typing import Any

from awavo.provenance import device_info, versions

__all__ = ["examine", "float32_rows_are_right"]


def float32_rows_are_right() -> bool:
    """A batched product that jax 0.10.2 gets wrong on CPU: the last of 32769 rows must be 32768^2 exactly."""
    import jax
    import jax.numpy as jnp

    rows = jnp.zeros((32_769, 3)).at[:, 0].set(jnp.arange(32_769.0))
    squares = jax.jit(jax.vmap(lambda r: jnp.sum((jnp.eye(3) @ r) ** 2)))(rows)
    return float(squares[-1]) == 32_768.0**2


def examine() -> list[dict[str, Any]]:
    """Findings with name, ok and detail."""
    from awavo.training.compilation import cache_folder, enable_cache

    device = device_info()
    cache = enable_cache()
    findings = [{"name": name, "ok": True, "detail": version} for name, version in versions().items()]
    findings += [
        {
            "name": "device",
            "ok": True,
            "detail": f"{device['platform']} {device['kind']} x{device['count']}, {device['cores']} cores",
        },
        {"name": "arithmetic", "ok": float32_rows_are_right(), "detail": "batched float32 products"},
        {
            "name": "compilation cache",
            "ok": cache is not None,
            "detail": str(cache)
            if cache
            else f"{cache_folder()} cannot be used: make it yours alone (chmod 700), or set AWAVO_CACHE_DIR",
        },
    ]
    free = shutil.disk_usage(".").free / 2**30
    findings.append({"name": "disk", "ok": free > 1, "detail": f"{free:.1f} GiB free in the current folder"})
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    findings.append(
        {
            "name": "browser",
            "ok": True,
            "detail": "found (for tests of the report page)"
            if browser
            else "none (only tests of the report page need one)",
        }
    )
    return findings
