"""Optimal transport on slices: distances on the line, samplings of slices, defining functions, sliced distances."""

from awavo.transport.ascent import MaxSlice, ascend_slices, max_sliced_wasserstein, slice_overlap
from awavo.transport.average import sliced_displacement
from awavo.transport.defining import Circular, Defining, Linear, LinearForms, Neural, Polynomial, monomial_weights
from awavo.transport.distances import adaptive_gswd, generalized_sliced_wasserstein, sliced_wasserstein
from awavo.transport.gradient import SlicedGradient, sliced_gradient
from awavo.transport.line import root, wasserstein_1d
from awavo.transport.plans import SlicedPlan, sliced_plan
from awavo.transport.slices import (
    SliceBank,
    draw_slices,
    iid_slices,
    kostlan_slices,
    mix_slices,
    orthogonal_slices,
    spiral_slices,
    unit_slices,
)
from awavo.transport.torch_bridge import torch_sliced_wasserstein
from awavo.transport.variants import sliced_distance

__all__ = [
    "Circular", "Defining", "Linear", "LinearForms", "MaxSlice", "Neural", "Polynomial", "SliceBank", "SlicedGradient",
    "SlicedPlan", "adaptive_gswd", "ascend_slices", "draw_slices", "generalized_sliced_wasserstein", "iid_slices",
    "kostlan_slices", "max_sliced_wasserstein", "mix_slices", "monomial_weights", "orthogonal_slices", "root",
    "slice_overlap", "sliced_displacement", "sliced_distance", "sliced_gradient", "sliced_plan", "sliced_wasserstein",
    "spiral_slices", "torch_sliced_wasserstein", "unit_slices", "wasserstein_1d",
]  # fmt: skip
