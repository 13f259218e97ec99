"""The options of each command, as dataclasses that tyro reads, and what each command runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from awavo.errors import AwavoError

__all__ = [
    "Certify",
    "CheckEnv",
    "Compare",
    "Demo",
    "Doctor",
    "Evaluate",
    "Explain",
    "Export",
    "Infer",
    "ListAll",
    "Render",
    "Report",
    "Reproduce",
    "Train",
]

JSON_HELP = "print one JSON line instead of text"
Json = Annotated[bool, arg(help=JSON_HELP)]
Trust = Annotated[bool, arg(help="let the run's configuration name code: a cost function, an operator, a module")]
Pairs = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]


@dataclass
class Device:
    """Where to compute."""

    device: Annotated[str, arg(help="auto, cpu or gpu")] = "auto"
    gpu_memory: Annotated[str, arg(help="share of the GPU's memory to reserve, or 'grow'")] = "grow"
    deterministic: Annotated[bool, arg(help="bit-reproducible GPU kernels (slower)")] = False

    def apply(self) -> None:
        """Set what jax reads when it is first imported."""
        if self.device not in ("auto", "cpu", "gpu"):
            raise AwavoError(f"--device {self.device} is not one of auto, cpu, gpu.")
        flags = os.environ.get("XLA_FLAGS", "")
        if self.device != "auto":
            os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[self.device]
        if self.gpu_memory == "grow":
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        else:
            os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = self.gpu_memory
        # Seeds run on threads of their own; threads inside each small matrix product only get in their way.
        if "xla_cpu_multi_thread_eigen" not in flags:
            flags += " --xla_cpu_multi_thread_eigen=false"
        if self.deterministic:
            flags += " --xla_gpu_deterministic_ops=true"
        os.environ["XLA_FLAGS"] = flags.strip()


@dataclass
class Train:
    """Train an algorithm on a task. The same command again goes on where the run stopped."""

    task: Annotated[
        Positional[str], arg(metavar="TASK", help="a task (see `awavo list`), a Gymnasium id, or bridge:ID")
    ]
    out: Annotated[Path | None, arg(help="run folder (default runs/TASK-ALGO)")] = None
    algo: Annotated[str, arg(help="algorithm (see `awavo list`)")] = "orpo-dr"
    preset: Annotated[str, arg(help="set of defaults: default or paper")] = "default"
    steps: Annotated[str, arg(help="environment steps of each seed, e.g. 200000 or 2e5")] = "200000"
    seeds: Annotated[int, arg(help="number of seeds")] = 10
    seed: Annotated[int, arg(help="number of the first seed")] = 0
    limits: Annotated[tuple[float, ...], arg(help="cost limits, one per cost (default: the task's)")] = ()
    sum_limit: Annotated[float | None, arg(help="one limit on the sum of all costs")] = None
    cost_fn: Annotated[str | None, arg(help="MODULE:FUNCTION with the costs of a Gymnasium environment")] = None
    option: Annotated[Pairs, arg(help="setting of the algorithm; repeatable")] = ()
    task_option: Annotated[Pairs, arg(help="option of the task; repeatable")] = ()
    seed_axis: Annotated[str, arg(help="auto, map or vmap")] = "auto"
    checkpoint_seconds: Annotated[float, arg(help="least time between checkpoints")] = 20.0
    dry_run: Annotated[bool, arg(help="print the resolved configuration and stop")] = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Train with a progress bar and print where the run lies."""
        self.device.apply()
        from awavo.cli import commands

        return commands.train(self)


@dataclass
class Evaluate:
    """Evaluate a run on fresh episodes, greedy and stochastic."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN", help="run folder")]
    episodes: Annotated[int, arg(help="episodes of each seed")] = 100
    seed: Annotated[int, arg(help="seed of the evaluation")] = 1_000_003
    stochastic: Annotated[bool, arg(help="report the stochastic policy (both are always written)")] = False
    trust: Trust = False
    planner: Annotated[bool, arg(help="decide by inference where the algorithm can; else by its actor alone")] = True
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Evaluate, write evaluation.json, print a table."""
        self.device.apply()
        from awavo.cli import commands

        return commands.evaluate(self)


@dataclass
class Certify:
    """Certify a run's policies and its method, check stored certificates, or prove an operator."""

    target: Annotated[Positional[str], arg(metavar="RUN|operator", help="run folder, or the word operator")]
    name: Annotated[
        Positional[str | None], arg(metavar="NAME", help="with operator: log, affine, power or MODULE:NAME")
    ] = None
    episodes: Annotated[int, arg(help="fresh episodes of each seed (at most, with --anytime)")] = 1_000
    delta: Annotated[float, arg(help="all bounds hold together with probability 1 - delta")] = 0.05
    anytime: Annotated[bool, arg(help="stop as soon as every policy is decided, with bounds that allow it")] = False
    max_violation: Annotated[float | None, arg(help="largest accepted P(cost > limit)")] = None
    seed: Annotated[int, arg(help="seed of the fresh episodes")] = 2_000_003
    recheck: Annotated[bool, arg(help="compute the stored certificates again and compare")] = False
    temperature: Annotated[float, arg(help="with operator log: lam as a share of the range")] = 0.15
    kappa: Annotated[float, arg(help="with operator power: the exponent")] = 0.1
    trust: Trust = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Write certificates.json and the report page; exit code 1 on a negative verdict."""
        self.device.apply()
        from awavo.cli import commands

        return commands.certify(self)


@dataclass
class Explain:
    """Say why a controller decided so, with intervals: text, JSON, CSV and a page."""

    target: Annotated[
        Positional[str],
        arg(metavar="FLIGHT.mcap|FLIGHT.ulg|RUN|FT3", help="decision record, PX4 log, run folder, or task to fly now"),
    ]
    out: Annotated[Path | None, arg(help="folder (default: beside the file, in the run, or runs/explain-TASK)")] = None
    factor: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME", help="wind, obstacles, drag, mass or obstacle:N; repeatable (default: wind, obstacles)"),
    ] = ()
    every: Annotated[int, arg(help="explain every so many decisions")] = 5
    threshold: Annotated[float, arg(help="influence from which a stretch of time is listed")] = 0.15
    seed: Annotated[int, arg(help="seed of a task flown now")] = 0
    steps: Annotated[int, arg(help="decisions of a task flown now")] = 600
    episodes: Annotated[int, arg(help="episodes of each seed of a RUN")] = 8
    mass: Annotated[float | None, arg(help="mass in kg, for forces from a PX4 log in N")] = None
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write explanation.json, .csv and .html, and print the ranking."""
        Device(device="cpu").apply()
        from awavo.runs.explain import explain

        return explain(self)


@dataclass
class Infer:
    """Infer the states of a system from part of them: lorenz96, from 50 sites to a million."""

    system: Annotated[Positional[str], arg(metavar="SYSTEM", help="lorenz96")]
    states: Annotated[int, arg(help="sites of the ring of a twin experiment")] = 50
    regime: Annotated[str, arg(help="G (noise 1, every 0.125) or D (variance 0.1, every 0.1)")] = "G"
    unobserved: Annotated[str, arg(help="share of the sites that is never observed")] = "1/3"
    forcing: Annotated[str, arg(help="known (8) or infer")] = "known"
    guess: Annotated[float, arg(help="where the inference of the forcing starts")] = 7.0
    seed: Annotated[int, arg(help="seed of the twin experiment and of the search")] = 0
    data: Annotated[Path | None, arg(help="own observations instead: .npz (observed, truth) or .parquet")] = None
    noise: Annotated[float | None, arg(help="deviation of the observations' noise (default: the regime's)")] = None
    out: Annotated[Path | None, arg(help="folder (default runs/lorenz96-STATES-seedSEED)")] = None
    draws: Annotated[int, arg(help="members of the posterior ensemble")] = 16
    rounds: Annotated[int, arg(help="rounds of the search for modes at most")] = 8
    dtype: Annotated[str, arg(help="float32 or float64")] = "float32"
    memory_mb: Annotated[float, arg(help="memory for the patches solved at once")] = 4096.0
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Write the posterior, the summary and the page."""
        self.device.apply()
        from awavo.cli.infer import infer

        return infer(self)


@dataclass
class Compare:
    """Compare runs: IQM with 95% stratified bootstrap, feasibility beside return."""

    run_folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="run folders")]
    threshold: Annotated[float | None, arg(help="return for 'steps to threshold'")] = None
    markdown: Annotated[bool, arg(help="print markdown")] = False
    json: Json = False

    def run(self) -> int:
        """Print the comparison."""
        from awavo.cli import commands

        return commands.compare(self)


@dataclass
class Reproduce:
    """Run the paper's comparison figure by figure. The same command again goes on where it stopped."""

    figure: Annotated[
        Positional[str],
        arg(metavar="FIGURE|all", help="learning, flight, interpretation, convergence, lorenz, ablation, or all"),
    ]
    budget: Annotated[str, arg(help="quick (for 2 CPU cores) or full (10 seeds, a GPU)")] = "quick"
    seeds: Annotated[int | None, arg(help="number of seeds (default: the budget's)")] = None
    engine: Annotated[str, arg(help="local, or ray (extra 'ray'): one task a seed on a Ray cluster")] = "local"
    out: Annotated[Path | None, arg(help="folder; results found in it are kept (default runs/reproduce-BUDGET)")] = None
    collect: Annotated[bool, arg(help="run nothing: make figures of the results that are there")] = False
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Run what is missing, then write data, pictures, paragraphs and the page."""
        self.device.apply()
        from awavo.paper.command import reproduce

        return reproduce(self)


@dataclass
class Report:
    """Write one self-contained HTML page about one or several runs."""

    run_folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="run folders")]
    out: Annotated[Path | None, arg(help="file to write (default: report.html in the first run folder)")] = None
    figure: Annotated[bool, arg(help="also write a figure as PNG and SVG beside it")] = False
    json: Json = False

    def run(self) -> int:
        """Write the page."""
        from awavo.cli import commands

        return commands.report(self)


@dataclass
class Export:
    """Write a run's policy as files that need no training code."""

    run_folder: Annotated[Positional[Path], arg(metavar="RUN", help="run folder")]
    out: Annotated[Path | None, arg(help="new folder (default: RUN/export)")] = None
    seed: Annotated[int | None, arg(help="seed whose policy to write (default: the first)")] = None
    onnx: Annotated[bool, arg(help="write the actor as ONNX too (extra 'onnx')")] = True
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write the files and their manifest."""
        Device(device="cpu").apply()
        from awavo.runs.export import export_command

        return export_command(self)


@dataclass
class Render:
    """Fly or walk one episode and write its path, a picture and a video."""

    target: Annotated[Positional[str], arg(metavar="RUN|TASK", help="run folder, or drone, quadrotor, walker")]
    out: Annotated[Path | None, arg(help="folder (default: the run's, or renders/TASK)")] = None
    policy: Annotated[str, arg(help="of a TASK: random, or for the quadrotor track or awavo")] = "random"
    seed: Annotated[int, arg(help="seed of the episode")] = 0
    steps: Annotated[int | None, arg(help="steps to play (default: to the end of the episode)")] = None
    video: Annotated[str, arg(help="gif, mp4 (needs ffmpeg) or none")] = "gif"
    task_option: Annotated[Pairs, arg(help="option of the task; repeatable")] = ()
    trust: Trust = False
    json: Json = False

    def run(self) -> int:
        """Write flight.json, picture.png and the video."""
        Device(device="cpu").apply()
        from awavo.runs.render import render_command

        return render_command(self)


@dataclass
class ListAll:
    """List tasks and algorithms."""

    json: Json = False

    def run(self) -> int:
        """Print two tables."""
        from awavo.cli import commands

        return commands.list_all(self)


@dataclass
class CheckEnv:
    """Check an environment and say what is wrong and how to mend it."""

    env: Annotated[Positional[str], arg(metavar="ID", help="task name or Gymnasium id")]
    cost_fn: Annotated[str | None, arg(help="MODULE:FUNCTION with the costs")] = None
    steps: Annotated[int, arg(help="random steps to take")] = 1000
    task_option: Annotated[Pairs, arg(help="option of the environment; repeatable")] = ()
    json: Json = False

    def run(self) -> int:
        """Print the findings; exit code 1 if there is an error among them."""
        from awavo.cli import commands

        return commands.check_env(self)


@dataclass
class Doctor:
    """Show versions, device, folders, and whether what is needed works."""

    json: Json = False

    def run(self) -> int:
        """Print the findings; exit code 1 if something needed is broken."""
        from awavo.cli import commands

        return commands.doctor(self)


@dataclass
class Demo:
    """Train ORPO-DR on constrained CartPole, evaluate it, write the report: the whole tour in a few minutes."""

    out: Annotated[Path, arg(help="run folder")] = Path("runs/demo")
    steps: Annotated[int, arg(help="environment steps of each seed")] = 200_000
    seeds: Annotated[int, arg(help="number of seeds")] = 4
    device: OmitArgPrefixes[Device] = field(default_factory=Device)
    json: Json = False

    def run(self) -> int:
        """Run the tour."""
        self.device.apply()
        from awavo.cli import commands

        return commands.demo(self)
