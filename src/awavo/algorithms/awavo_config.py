"""Settings of AWaVO: those of ORPO-DR, of the model p_D(theta), and of the inference that decides."""

from __future__ import annotations

from dataclasses import dataclass

from awavo.config import OrpoDrConfig, setting

__all__ = ["AwavoConfig"]


@dataclass(frozen=True)
class AwavoConfig(OrpoDrConfig):
    """Settings of AWaVO. The defaults were chosen by measurement; the paper's are the preset `paper`."""

    num_envs: int = setting(4, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(25, "steps of each environment between updates", low=1, high=100_000)
    num_updates: int = setting(100, "gradient steps of actor and critics after each rollout", low=1, high=100_000)
    warmup_steps: int = setting(400, "environment steps with random actions", low=0, high=1_000_000_000)
    clip_targets: str = setting("on", "keep the critics' targets within the return bounds", choices=("off", "on"))
    polyak: float = setting(0.05, "averaging rate of the target critics", low=0.0, high=1.0)
    discount: float = setting(0.99, "discount gamma of critics and plans", low=0.0, high=0.99999)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of actor's and critics' hidden layers", low=1, high=65_536)
    margin: float = setting(0.1, "share of each limit kept in reserve", low=0.0, high=1.0)
    window: int = setting(8, "finished episodes W in the constraint estimate", low=1, high=100_000)
    weight_initial: float = setting(0.5, "posterior: first weight of each constraint", low=0.0, high=1e6)
    weight_min: float = setting(0.3, "posterior: smallest weight of a constraint", low=0.0, high=1e6)
    weight_max: float = setting(2.0, "posterior: largest weight of a constraint", low=0.0, high=1e6)
    weight_growth: float = setting(
        0.05, "posterior: growth of a violated constraint's weight per rollout", low=0.0, high=10.0
    )
    weight_decay: float = setting(
        0.02, "posterior: decay of a satisfied constraint's weight per rollout", low=0.0, high=10.0
    )

    num_members: int = setting(5, "members of the ensemble p_D(theta)", low=1, high=1_000)
    model_hidden: tuple[int, ...] = setting((32, 32), "sizes of the model's hidden layers", low=1, high=65_536)
    model_activation: str = setting("relu", "activation of the model", choices=("relu", "silu", "tanh"))
    model_lr: float = setting(1e-3, "Adam step size of the model", low=0.0, high=1.0)
    model_weight_decay: float = setting(3e-5, "weight decay of the model", low=0.0, high=1.0)
    model_updates: int = setting(200, "gradient steps of the model after each rollout", low=1, high=100_000)
    model_batch: int = setting(128, "transitions per gradient step and member", low=1, high=1_000_000)
    imagined_batch: int = setting(
        128, "transitions of the model added to each batch of actor and critics", low=0, high=1_000_000
    )
    prior_scale: float = setting(0.1, "scale of the members' random priors", low=0.0, high=100.0)

    planning: str = setting("on", "decide by inference, or with the actor alone", choices=("on", "off"))
    horizon: int = setting(20, "steps N planned ahead", low=1, high=10_000)
    num_sequences: int = setting(128, "candidate action sequences K of a decision", low=2, high=1_000_000)
    num_rounds: int = setting(1, "rounds of drawing, weighing and moving in a decision", low=1, high=1_000)
    actor_share: float = setting(0.5, "share of candidates from the actor", low=0.0, high=1.0)
    memory_share: float = setting(0.3, "share of candidates from the shifted posterior", low=0.0, high=1.0)
    num_particles: int = setting(32, "continuous actions: particles P of q", low=2, high=100_000)
    proposal_noise: float = setting(0.2, "noise on proposals, of half the range or as a share", low=0.0, high=1.0)
    effective_share: float = setting(
        0.04, "effective share of the candidates that sets T; 0 for T = 1", low=0.0, high=1.0
    )
    initial: str = setting(
        "memory", "where q starts: the shifted posterior, or the actor's candidates", choices=("memory", "actor")
    )
    metric: str = setting("a-gswd", "what q is moved by", choices=("a-gswd", "kl"))
    slices: str = setting("adaptive", "slices from the actor's head, or drawn", choices=("adaptive", "random"))
    degree: int = setting(3, "odd degree m of the defining function; 1 for linear slices", low=1, high=9)
    order: float = setting(2.0, "order k of A-GSWD", low=1.0, high=16.0)
    num_slices: int = setting(8, "slices L", low=1, high=10_000)
    num_steps: int = setting(4, "gradient steps of A-GSWD in a decision", low=1, high=1_000)
    slice_lr: float = setting(1e-3, "Adam step size of the slicing head", low=0.0, high=1.0)
    slice_updates: int = setting(2, "gradient steps of the slicing head after each rollout", low=0, high=100_000)
    diversity: float = setting(0.5, "weight of the slices' diversity, in units of the distance", low=0.0, high=1e6)
    amortize_lr: float = setting(5e-4, "Adam step size towards stored posteriors", low=0.0, high=1.0)
    amortize_updates: int = setting(25, "steps of the actor to stored posteriors per rollout", low=0, high=100_000)
    posterior_capacity: int = setting(8_000, "decisions stored for amortisation", low=1, high=100_000_000)
