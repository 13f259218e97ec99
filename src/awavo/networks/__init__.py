"""Networks: perceptrons, actors, quantile critics and action distributions, all array-only pytrees."""

from awavo.networks.critic import CautiousCritic, QuantileCritic, cautious_critic, quantile_critic
from awavo.networks.distributions import Categorical, SquashedGaussian
from awavo.networks.mlp import MLP, mlp
from awavo.networks.normalizer import RunningStatistics, normalize, running_statistics, update_statistics
from awavo.networks.policy import Actor, actor
from awavo.networks.slicing import SlicingHead, diversity_loss, slicing_head

__all__ = [
    "MLP",
    "Actor",
    "Categorical",
    "CautiousCritic",
    "QuantileCritic",
    "RunningStatistics",
    "SlicingHead",
    "SquashedGaussian",
    "actor",
    "cautious_critic",
    "diversity_loss",
    "mlp",
    "normalize",
    "quantile_critic",
    "running_statistics",
    "slicing_head",
    "update_statistics",
]
