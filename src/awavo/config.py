"""Every configuration, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OrpoDrConfig"]


@dataclass(frozen=True)
class OrpoDrConfig:
    """Settings of ORPO-DR."""

    num_envs: int = 16
    rollout_length: int = 32
    num_updates: int = 64
    batch_size: int = 128
    replay_capacity: int = 1_000_000
    warmup_steps: int = 1_000
    hidden: tuple[int, ...] = (128, 128)
    num_quantiles: int = 16
    discount: float = 0.99
    actor_lr: float = 3e-4
    critic_lr: float = 1e-3
    polyak: float = 0.01
    actor_polyak: float = 0.001
    huber: float = 1.0
    value_scale: float = 10.0
    max_grad_norm: float = 10.0
    entropy: float = 0.05
    operator: str = "log"
    temperature: float = 0.01
    kappa: float = 0.1
    bound_margin: float = 0.05
    rectify: str = "posterior"
    tolerance: float = 0.5
    window: int = 50
    weight_initial: float = 0.2
    weight_min: float = 0.05
    weight_max: float = 20.0
    weight_growth: float = 0.03
    weight_decay: float = 0.01
