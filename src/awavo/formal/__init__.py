"""Certificates that can fail: operators, metric, critics, convergence, safety."""

from awavo.formal.bellman import certify_contraction, certify_fixed_point, certify_projection
from awavo.formal.bounds import beta_mixture, betting_mean, clopper_pearson, empirical_bernstein, hoeffding
from awavo.formal.calibration import certify_calibration
from awavo.formal.certificate import Assumption, Certificate, Evidence, compare_certificates
from awavo.formal.cmdp import ExactCMDP, exact_cmdp, random_cmdp, solve
from awavo.formal.metric import SliceInstance, certify_metric
from awavo.formal.operator_proof import certify_operator, require_operator
from awavo.formal.rates import certify_learning_rate, fit_rate
from awavo.formal.safety import certify_safety
from awavo.formal.schedule import iterations_for, schedule
from awavo.formal.tabular_orpo import certify_improvement, tabular_orpo

__all__ = [
    "Assumption", "Certificate", "Evidence", "ExactCMDP", "SliceInstance", "beta_mixture", "betting_mean",
    "certify_calibration", "certify_contraction", "certify_fixed_point", "certify_improvement", "certify_learning_rate",
    "certify_metric", "certify_operator", "certify_projection", "certify_safety", "clopper_pearson",
    "compare_certificates", "empirical_bernstein", "exact_cmdp", "fit_rate", "hoeffding", "iterations_for",
    "random_cmdp", "require_operator", "schedule", "solve", "tabular_orpo",
]  # fmt: skip
