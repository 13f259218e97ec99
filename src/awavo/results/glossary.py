"""What each metric means, in the words that the report shows beside its curve and docs/metrics.md prints."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["METRICS", "TERMS", "explain_metric"]

TERMS = {
    "Return": "the sum of all rewards of an episode",
    "Cost": "the sum of one cost over an episode; its limit bounds the mean over episodes",
    "Within limits": "the mean of every cost over a seed's episodes is at most its limit",
    "Seed": "one training from scratch, with its own random numbers; results differ between seeds",
    "IQM": "interquartile mean: the mean of the middle half of the seeds, which one lucky or failed seed hardly moves",
    "Square brackets": "95% interval: how far the figure could be from that of many more seeds",
    "Episodes over": "share of single episodes whose total is above the limit; a mean within its limit allows some",
    "Greedy, stochastic": "the policy always takes its most likely action, or draws actions as in training",
}

METRICS = {
    "train/critic_loss": "How badly the critics predict returns and costs: their loss, all summed",
    "train/cost_critic_loss": "How badly the critics of the costs predict them: mean squared error, all summed",
    "train/actor_loss": "Minus what the actor maximises: reward against costs, each with its weight, plus entropy",
    "train/value_loss": "How badly the value networks predict returns and costs: mean squared error",
    "train/entropy": "How random the policy is, in nats; it falls as the policy makes up its mind",
    "train/kl": "How far the policy moved in this iteration: KL divergence from before to after, in nats",
    "train/step_scale": "Share of the whole step that was taken: by the line search, or of PPO's passes; 0 is no step",
    "train/feasible": "1 where every cost estimate was within its limit when this iteration learnt, else 0",
    "train/recovering": "1 where the step only brings costs down because no step can keep all limits, else 0",
    "train/cost_estimate": "Mean total of this cost over the last episodes: what learning compares with its limit",
    "train/cost_weight": "Weight of this cost in the actor's objective",
    "train/entropy_weight": "Weight alpha of the entropy in the actor's objective, adapted to a target",
    "train/multiplier": "Lagrange multiplier of this cost: its price in reward",
    "train/barrier_weight": "Weight of this cost's log barrier, which grows as the cost nears its limit",
    "train/num_reward_updates": "Updates for the reward since the start",
    "train/num_rectified_updates": "Updates that brought a violated cost down, since the start",
    "train/clip_rate": "Share of critic means outside the assumed bounds of returns; well above 0, these are too tight",
    "train/skipped_updates": "Updates since the start whose result was not finite: the old state was kept",
    "train/model_loss": "How badly the model predicts the next step: negative log-likelihood",
    "train/model_coverage": "Share of steps inside the model's 90% intervals; 0.9 is right",
    "train/model_pit_error": "How far the model's probabilities are from uniform; 0 is calibrated",
    "train/member_weight": "Largest weight of one member of the ensemble; 1 is a single member",
    "train/effective_size": "How many plans share the posterior's weight; 1 is a single plan",
    "train/plan_distance": "Distance between the plans before and after inference",
    "train/amortize_loss": "How far the actor is from the planner's decisions",
    "train/slice_distance": "Distance that the learnt slices tell apart, which they maximise",
    "time/steps_per_second": "Environment steps of all seeds together a second, updates included, compilation not",
    "time/cpu_seconds": "CPU seconds of one iteration, all seeds together",
}


def explain_metric(name: str, cost_names: Sequence[str] = ()) -> str:
    """What a column means; a column of one cost ends with that cost's name. Nothing for one of somebody else's."""
    if name in METRICS:
        return METRICS[name]
    base = next((name.removesuffix(f"_{cost}") for cost in cost_names if name.endswith(f"_{cost}")), "")
    return METRICS.get(base, "")
