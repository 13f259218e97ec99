"""What a stored program would do, asked in a process of its own: a crafted file makes MLIR's reader crash or hang.

Run as a file, with the program's bytes on standard input, it prints the operations and the targets of custom calls as
one JSON line. `check_program` runs it and refuses what is not on the list.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from awavo.types import Fields

__all__ = ["MAX_BYTES", "TARGETS", "check_program"]

MAX_BYTES = 2**28
"""Bytes of one program."""
TARGETS = frozenset({"Sharding", "cu_threefry2x32_ffi", "mhlo.topk"})
"""Custom calls that an export may hold; every other one names code outside the program."""
DIALECTS = ("builtin.", "func.", "stablehlo.", "chlo.", "sdy.")
# Operations that wait for somebody outside.
WAITING = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "send"))
SECONDS, MEMORY = 120, 3 * 2**30


def check_program(content: bytes) -> str | None:
    """Say why a serialised program must not be loaded, or None where it may be."""
    if len(content) > MAX_BYTES:
        return f"it has {len(content):,} bytes, at most {MAX_BYTES:,} are read"
    try:
        done = subprocess.run([sys.executable, "-P", __file__], input=content, capture_output=True, timeout=SECONDS)
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"it was not read within {SECONDS} s"
    except ValueError:
        return "it cannot be read as StableHLO"
    if strange := sorted(set(found["targets"]) - TARGETS):
        return f"it calls code outside of itself ({', '.join(strange)})"
    if strange := [op for op in found["operations"] if op in WAITING or not op.startswith(DIALECTS)]:
        return f"it has operations that no export has ({', '.join(strange)})"
    return "it has side effects" if found["effects"] else None


def _describe(content: bytes) -> Fields:
    """Operations, targets of custom calls and effects of a program; it is parsed, never compiled or run."""
    from jax import export
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo
    from jax.interpreters.mlir import make_ir_context

    program = export.deserialize(bytearray(content))
    operations, targets = set(), set()

    def look(operation: Any) -> Any:
        operations.add(operation.name)
        if operation.name.endswith("custom_call"):
            targets.add(ir.StringAttr(operation.attributes["call_target_name"]).value)
        return ir.WalkResult.ADVANCE

    with make_ir_context() as context:
        stablehlo.deserialize_portable_artifact(context, program.mlir_module_serialized).operation.walk(look)
    effects = len(program.ordered_effects) + len(program.unordered_effects)
    return {"operations": sorted(operations), "targets": sorted(targets), "effects": effects}


def main() -> None:
    """Read a program from standard input and describe it, in bounded memory."""
    import os
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["JAX_PLATFORMS"] = "cpu"
    print(json.dumps(_describe(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
