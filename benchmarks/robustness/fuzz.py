"""Throw nonsense at every verb, every file, the bridge, MAVLink and logs, and see that only answers come back.

    PYTHONPATH=src python benchmarks/robustness/fuzz.py [--cases 2400] [--seed 0] [--jobs 2] [--out RESULT.json]

Case n of seed s is the same wherever it runs; `--only n` runs it alone and shows what was said. Cases run in processes
of a few hundred, in a memory limit; a case that ends its process is found by its number. A case is bad if it ends with
an exception that is not ours (exit code 3), prints more than one line for a refusal, takes longer than `--limit`
seconds or more than 2 GB, crashes, or writes something although it refuses.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Collection
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from fuzz_cases import KINDS, Kind, make_case, prepare

MEMORY = 2 * 2**30
PER_PROCESS = 300


class TooSlow(BaseException):
    """Raised by the alarm, past every handler of the package."""


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found


def peak_memory() -> int:
    """The largest resident memory of this process since it was last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> int:
    """Forget the largest memory; return what is in use now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def judge(code: int | None, err: str, before: dict, after: dict, extra: int) -> list[str]:
    """What is wrong with an answer."""
    wrong = []
    if code not in (0, 1, 2):
        wrong.append(f"exit code {code}")
    if "Traceback" in err:
        wrong.append("traceback")
    if code == 2:
        lines = [line for line in err.splitlines() if line.startswith("awavo: ")]
        if len(lines) != 1 or not lines[0].isprintable() or "not enough memory" in err:
            wrong.append("refusal is not one line")
        if before != after:
            names = sorted(set(before.items()) ^ set(after.items()))
            wrong.append(f"written on refusal: {names[0][0]}")
    if extra > MEMORY:
        wrong.append(f"{extra / 2**30:.1f} GB")
    return wrong


def run_case(number: int, seed: int, stock: Path, limit: float, kinds: Collection[Kind] = tuple(KINDS)) -> dict:
    """Run one case and say how it went."""
    rng = random.Random(f"{seed}-{number}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        label, call = make_case(rng, stock, folder, kinds)
        out, err = io.StringIO(), io.StringIO()
        before, used, began = listing(folder), reset_peak(), time.perf_counter()
        code: int | None = None

        def late(*_: object) -> None:
            raise TooSlow

        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, limit)
        home = os.getcwd()
        try:
            os.chdir(folder)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = call()
        except TooSlow:
            err.write(f"took longer than {limit:g} s")
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        except BaseException:
            err.write(traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(home)
        wrong = judge(code, err.getvalue(), before, listing(folder), peak_memory() - used)
        if "took longer" in err.getvalue():
            wrong = ["hang"]
        return {
            "number": number, "kind": label.split()[0], "label": label, "code": code, "wrong": wrong,
            "seconds": time.perf_counter() - began, "said": err.getvalue()[-2000:] if wrong else "",
        }  # fmt: skip


def work(numbers: range, seed: int, stock: Path, limit: float) -> None:
    """Run cases in this process; one JSON line before and one after each."""
    report = os.fdopen(os.dup(1), "w", buffering=1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import jax

    jax.devices()  # what jax maps for itself does not count
    size = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
    most = int(size.split()[1]) * 1024 + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in numbers:
        report.write(json.dumps({"begin": number}) + "\n")
        report.write(json.dumps(run_case(number, seed, stock, limit)) + "\n")


def spread(args: argparse.Namespace, stock: Path) -> list[dict]:
    """Run all cases in processes, `--jobs` at a time; a process that dies is a bad case, and the rest go on."""
    waiting = [range(i, min(i + PER_PROCESS, args.cases)) for i in range(0, args.cases, PER_PROCESS)]
    running: list[tuple[subprocess.Popen, range, Path]] = []
    results: dict[int, dict] = {}
    while waiting or running:
        while waiting and len(running) < args.jobs:
            numbers = waiting.pop(0)
            log = stock / f"log-{numbers.start}-{time.monotonic_ns()}"
            command = [sys.executable, __file__, "--work", str(numbers.start), str(numbers.stop), "--stock", str(stock)]
            command += ["--seed", str(args.seed), "--limit", str(args.limit)]
            with log.open("w") as file:
                process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
            running.append((process, numbers, log))
        time.sleep(0.2)
        for item in list(running):
            process, numbers, log = item
            silent = time.time() - log.stat().st_mtime > 6 * args.limit + 60
            if process.poll() is None and not silent:
                continue
            if silent:
                process.kill()
                process.wait()
            running.remove(item)
            rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
            results |= {row["number"]: row for row in rows if "number" in row}
            left = [n for n in numbers if n not in results]
            if left:
                why = "hang" if silent else f"process ended with {process.returncode}"
                results[left[0]] = {"number": left[0], "kind": "?", "label": "?", "code": None, "wrong": [why],
                                    "seconds": 0.0, "said": ""}  # fmt: skip
                waiting.insert(0, range(left[0] + 1, numbers.stop))
    return [results[n] for n in sorted(results)]


def summarise(rows: list[dict]) -> dict:
    bad = [row for row in rows if row["wrong"]]
    kinds = {}
    for kind in sorted({row["kind"] for row in rows}):
        own = [row for row in rows if row["kind"] == kind]
        codes = collections.Counter(str(row["code"]) for row in own)
        kinds[kind] = {"cases": len(own), "exit_codes": dict(codes), "bad": sum(bool(row["wrong"]) for row in own)}

    def count(word: str) -> int:
        return sum(any(word in w for w in row["wrong"]) for row in bad)

    return {
        "cases": len(rows), "bad": len(bad), "tracebacks_or_faults": count("traceback") + count("exit code"),
        "hangs": count("hang"), "crashes": count("process ended"), "over_2_GB": count(" GB"),
        "written_on_refusal": count("written"), "slowest_s": max(row["seconds"] for row in rows), "kinds": kinds,
        "bad_cases": [{k: row[k] for k in ("number", "label", "wrong", "said")} for row in bad],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of one case")
    parser.add_argument("--only", type=int, help="run this case alone and show it")
    parser.add_argument("--stock", type=Path, help="folder of good files to bend, kept between calls")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.work:
        work(range(*args.work), args.seed, args.stock, args.limit)
        return
    from awavo.provenance import stamp

    made = stamp("command", "commit", "versions", "device")
    with tempfile.TemporaryDirectory(prefix="fuzz-stock-") as name:
        stock = args.stock or Path(name)
        began = time.perf_counter()
        prepare(stock)
        prepared = time.perf_counter() - began
        if args.only is not None:
            print(json.dumps(run_case(args.only, args.seed, stock, args.limit), indent=1))
            return
        rows = spread(args, stock)
    found = summarise(rows)
    result = {
        "seed": args.seed, **found, "prepare_s": prepared, "wall_s": time.perf_counter() - began, "jobs": args.jobs,
        **made,
    }  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "kinds"}, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    raise SystemExit(bool(found["bad"]))


if __name__ == "__main__":
    main()
