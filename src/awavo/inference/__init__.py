"""Inference: operators between likelihoods and returns."""

from awavo.inference.operators import Operator, check_operator, make_operator, operator_from_maps

__all__ = ["Operator", "check_operator", "make_operator", "operator_from_maps"]
