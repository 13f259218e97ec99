"""Networks: perceptrons, actors, quantile critics and action distributions, all array-only pytrees."""

from awavo.networks.critic import CautiousCritic, QuantileCritic, cautious_critic, quantile_critic
from awavo.networks.distributions import ActionDistribution, Categorical, SquashedGaussian, SquashedMixture
from awavo.networks.mlp import MLP, mlp
from awavo.networks.normalizer import RunningStatistics, normalize, running_statistics, update_statistics
from awavo.networks.policy import Actor, actor, actor_parts
from awavo.networks.slicing import SlicingHead, diversity_loss, slicing_head

__all__ = [
    "MLP", "ActionDistribution", "Actor", "Categorical", "CautiousCritic", "QuantileCritic", "RunningStatistics",
    "SlicingHead", "SquashedGaussian", "SquashedMixture", "actor", "actor_parts", "cautious_critic", "diversity_loss",
    "mlp", "normalize", "quantile_critic", "running_statistics", "slicing_head", "update_statistics",
]  # fmt: skip
