"""Configurations of the baselines. Defaults were chosen by measurement; a paper's settings are the preset `paper`."""

from __future__ import annotations

from dataclasses import dataclass

from awavo.config import setting

__all__ = [
    "CpoConfig",
    "CrpoConfig",
    "OnPolicyConfig",
    "PaetsConfig",
    "PcpoConfig",
    "TrpoIpoConfig",
    "TrpoLagrangianConfig",
]


@dataclass(frozen=True)
class OnPolicyConfig:
    """What all trust-region methods share."""

    num_envs: int = setting(32, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(128, "steps of each environment between updates", low=1, high=100_000)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers", low=1, high=65_536)
    activation: str = setting("tanh", "activation of the hidden layers", choices=("tanh", "relu", "silu"))
    log_std: float = setting(-0.5, "continuous actions: first log-deviation", low=-10.0, high=2.0)
    discount: float = setting(0.99, "discount gamma of the advantages", low=0.0, high=1.0)
    gae_lambda: float = setting(0.95, "decay lambda of the advantages", low=0.0, high=1.0)
    value_lr: float = setting(2e-3, "Adam step size of the value network", low=0.0, high=1.0)
    value_epochs: int = setting(4, "passes of the value network over each rollout", low=1, high=10_000)
    value_batch: int = setting(512, "rows of a minibatch of the value network", low=1, high=10_000_000)
    value_scale: float = setting(10.0, "scale of the value network's outputs", low=1e-6, high=1e6)
    max_kl: float = setting(0.01, "radius delta of the trust region", low=1e-8, high=10.0)
    damping: float = setting(0.01, "multiple of the identity added to the Fisher matrix", low=0.0, high=10.0)
    cg_iterations: int = setting(10, "iterations of the conjugate gradient", low=1, high=1_000)
    fisher_rows: int = setting(1_024, "rows in the Fisher matrix, evenly spread", low=1, high=10_000_000)
    backtracks: int = setting(10, "largest number of step reductions in the line search", low=0, high=1_000)
    shrink: float = setting(0.8, "factor of one reduction", low=0.01, high=0.99)
    tolerance: float = setting(0.5, "tolerance on every limit", low=0.0, high=1e9)
    polyak: float = setting(0.05, "share of the newest policy in the average that acts greedily", low=1e-6, high=1.0)
    margin: float = setting(0.0, "share of each limit kept in reserve", low=0.0, high=1.0)
    window: int = setting(32, "finished episodes W in the constraint estimate", low=1, high=100_000)


@dataclass(frozen=True)
class CrpoConfig(OnPolicyConfig):
    """Settings of CRPO."""

    choice: str = setting("largest", "which violated constraint is descended", choices=("largest", "first", "random"))
    max_kl_violated: float = setting(0.002, "radius of a step on a cost", low=1e-8, high=10.0)


@dataclass(frozen=True)
class PcpoConfig(OnPolicyConfig):
    """Settings of PCPO."""

    projection: str = setting("kl", "norm of the projection", choices=("kl", "l2"))
    line_search: str = setting("on", "shrink the whole step until it keeps the radius", choices=("on", "off"))


@dataclass(frozen=True)
class CpoConfig(OnPolicyConfig):
    """Settings of CPO."""


@dataclass(frozen=True)
class TrpoIpoConfig(OnPolicyConfig):
    """Settings of TRPO-IPO."""

    barrier: float = setting(20.0, "sharpness t of the log barrier", low=1e-6, high=1e9)
    infeasible: str = setting("phase1", "what replaces a violated barrier", choices=("phase1", "penalty"))
    penalty: float = setting(1.0, "penalty: weight of a violation per step", low=0.0, high=1e6)
    min_slack: float = setting(1e-3, "smallest slack the line search may leave", low=0.0, high=1e6)


@dataclass(frozen=True)
class TrpoLagrangianConfig(OnPolicyConfig):
    """Settings of TRPO-Lagrangian; a PID multiplier with `kp` or `kd` above 0."""

    multiplier_initial: float = setting(0.0, "first multiplier of every constraint", low=0.0, high=1e6)
    multiplier_max: float = setting(20.0, "largest multiplier", low=0.0, high=1e6)
    ki: float = setting(0.01, "integral gain (the multiplier's step size) on the relative excess", low=0.0, high=1e3)
    kp: float = setting(0.0, "proportional gain", low=0.0, high=1e3)
    kd: float = setting(0.0, "gain on a rising cost", low=0.0, high=1e3)


@dataclass(frozen=True)
class PaetsConfig:
    """Settings of PaETS."""

    num_envs: int = setting(4, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(50, "steps of each environment between trainings of the model", low=1, high=100_000)
    num_updates: int = setting(100, "gradient steps of the model after each rollout", low=1, high=100_000)
    batch_size: int = setting(256, "transitions per gradient step and member", low=1, high=1_000_000)
    replay_capacity: int = setting(100_000, "transitions kept", low=1, high=1_000_000_000)
    warmup_steps: int = setting(400, "environment steps with random actions", low=0, high=1_000_000_000)
    hidden: tuple[int, ...] = setting((128, 128), "sizes of the model's hidden layers", low=1, high=65_536)
    num_members: int = setting(5, "members of the ensemble", low=1, high=1_000)
    model_lr: float = setting(1e-3, "Adam step size of the model", low=0.0, high=1.0)
    weight_decay: float = setting(3e-5, "weight decay of the model", low=0.0, high=1.0)
    horizon: int = setting(25, "steps planned ahead", low=1, high=10_000)
    num_sequences: int = setting(128, "sequences drawn in each round of planning", low=2, high=1_000_000)
    num_rounds: int = setting(4, "rounds of planning", low=1, high=1_000)
    num_components: int = setting(5, "components of the mixture", low=1, high=1_000)
    temperature: float = setting(0.2, "lambda, in deviations of the returns", low=1e-6, high=1e6)
    entropy: float = setting(0.0, "weight kappa of the density's flattening", low=0.0, high=10.0)
    initial_std: float = setting(0.7, "first deviation of every relaxed action", low=1e-6, high=10.0)
    min_std: float = setting(0.05, "smallest deviation of a relaxed action", low=1e-6, high=10.0)
    constrained: str = setting("off", "penalise predicted costs above the limits' share", choices=("off", "on"))
    penalty: float = setting(5.0, "constraints on: return lost per unit of predicted excess", low=0.0, high=1e6)
    tolerance: float = setting(0.5, "tolerance on every limit", low=0.0, high=1e9)
    window: int = setting(16, "finished episodes W in the constraint estimate", low=1, high=100_000)
