"""Peak memory of forward+gradient over what the inputs take, n = 100,000 points, L = 100 slices.

    PYTHONPATH=src python benchmarks/transport/memory.py

Each setting runs in a process of its own. A first call settles what is loaded once; then freed pages go back to the
system, the kernel's high-water mark is reset, and a call is measured against the resident set before it, the largest
of three.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

from report import single_thread, write

SETTINGS = {"default": None, "chunk 10": 10, "chunk 4": 4, "whole": 100}


def status_mib(field: str) -> float:
    """A line of the kernel's account of this process (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def measure(chunk: int | None, gradient: bool, weighted: bool) -> float:
    """Growth of the peak, in MiB."""
    single_thread()
    import jax
    import jax.numpy as jnp
    import numpy as np

    from awavo.transport import sliced_wasserstein

    def distance(x, y, slices, weights):
        return sliced_wasserstein(x, y, slices=slices, chunk=chunk, x_weights=weights if weighted else None).value

    run = jax.jit(jax.value_and_grad(distance) if gradient else distance)
    rng = np.random.default_rng(0)
    num = 100_000
    x, y = (jnp.asarray(rng.standard_normal((num, 20), np.float32)) for _ in range(2))
    slices = jnp.asarray(rng.standard_normal((100, 20), np.float32))
    weights = jnp.full((num,), 1 / num, jnp.float32)
    compiled = run.lower(x, y, slices, weights).compile()
    jax.block_until_ready(compiled(x, y, slices, weights))
    growth = []
    for _ in range(3):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = status_mib("VmRSS")
        jax.block_until_ready(compiled(x, y, slices, weights))
        growth.append(status_mib("VmHWM") - before)
    return max(growth)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
        return
    table = ["Growth of the peak resident set, MiB (one array of n x L is 38).", ""]
    table += ["| chunk | forward | forward+gradient | weighted forward+gradient |", "|---|---|---|---|"]
    record = {}
    for name, chunk in SETTINGS.items():
        cells = []
        for gradient, weighted in ((False, False), (True, False), (True, True)):
            call = [sys.executable, __file__, json.dumps([chunk, gradient, weighted])]
            answer = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            cells.append(float(answer.strip().splitlines()[-1]))
        record[name] = cells
        table.append(f"| {name} | " + " | ".join(f"{c:.0f}" for c in cells) + " |")
        print(table[-1], flush=True)
    write("memory", "Peak memory", table, record, ("jax", "jaxlib", "numpy"))


if __name__ == "__main__":
    main()
