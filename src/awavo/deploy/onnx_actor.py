"""A trained actor as an ONNX graph: normalisation, perceptron, and the greedy action; needs the extra `onnx`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from awavo.errors import InputError, MissingExtraError
from awavo.types import ActorParts, Box, Discrete

__all__ = ["actor_onnx", "run_onnx"]

ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
OPSET = 17


def _import(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"an ONNX actor needs {name}: pip install 'awavo[onnx]'.") from error


def actor_onnx(parts: ActorParts, about: str = "") -> bytes:
    """Write the graph: input `obs` [B, d] float32, output `action` [B] int64 or [B, k] float32.

    A row that is not finite gets NaN, or -1 for numbered actions. `about` is what the file says of itself.
    """
    onnx = _import("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    if parts.activation not in ACTIVATIONS:
        raise InputError(f"activation '{parts.activation}' has no ONNX form here: known {', '.join(ACTIVATIONS)}.")
    nodes, constants = [], []

    def constant(name: str, value: ArrayLike) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def whole(name: str, value: ArrayLike) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, np.int64), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    x = node("Div", node("Sub", "obs", constant("mean", parts.mean)), constant("std", parts.std))
    x = node("Clip", x, constant("low", -10.0), constant("high", 10.0))
    layers = list(zip(parts.weights, parts.biases, strict=True))
    space = parts.space
    for i, (weight, bias) in enumerate(layers):
        weight, bias = np.asarray(weight), np.asarray(bias)
        if i == len(layers) - 1 and isinstance(space, Box):  # of means and spreads only the means are needed
            kept = _means_and_shares(weight.shape[1], space.dim, parts.num_components)
            weight, bias = weight[:, kept], bias[kept]
        x = node("Add", node("MatMul", x, constant(f"w{i}", weight)), constant(f"b{i}", bias))
        if i < len(layers) - 1:
            x = node(ACTIVATIONS[parts.activation], x)
    # 0 times what is not finite is NaN, and stays so in a sum.
    whole("row", [1])
    nothing = node("Mul", "obs", constant("zero", 0.0))
    if isinstance(space, Discrete):
        whole("none", -1)
        odd = node("IsNaN", node("ReduceSum", nothing, "row", keepdims=0))
        best = node("ArgMax", x, axis=-1, keepdims=0)
        nodes.append(helper.make_node("Where", [odd, "none", best], ["action"]))
        output = helper.make_tensor_value_info("action", onnx.TensorProto.INT64, ["B"])
    else:
        low, high = np.array(space.low), np.array(space.high)
        if parts.num_components > 1:
            x = _heaviest(x, parts.num_components, space.dim, node, whole)
        scaled = node("Mul", node("Tanh", x), constant("half", (high - low) / 2))
        scaled = node("Add", scaled, constant("centre", (high + low) / 2))
        nodes.append(helper.make_node("Add", [scaled, node("ReduceSum", nothing, "row", keepdims=1)], ["action"]))
        output = helper.make_tensor_value_info("action", onnx.TensorProto.FLOAT, ["B", space.dim])
    given = helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, ["B", len(parts.mean)])
    graph = helper.make_graph(nodes, "actor", [given], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    model.doc_string = about
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _means_and_shares(width: int, dim: int, num_components: int) -> np.ndarray:
    """Which outputs decide greedily: the means, and of a mixture the log-weights at the end."""
    return np.r_[: num_components * dim, width - (num_components if num_components > 1 else 0) : width]


def _heaviest(x: str, num: int, dim: int, node: Callable[..., str], whole: Callable[..., str]) -> str:
    """The means of the component with the largest log-weight: outputs are the means of all, then the log-weights."""
    means = node("Slice", x, whole("first", [0]), whole("last", [num * dim]), whole("axis", [1]))
    logits = node("Slice", x, whole("from", [num * dim]), whole("to", [num * dim + num]), "axis")
    means = node("Reshape", means, whole("apart", [-1, num, dim]))
    best = node("ArgMax", logits, axis=1, keepdims=1)
    place = node("Expand", node("Unsqueeze", best, whole("deep", [2])), whole("one", [1, 1, dim]))
    return node("Squeeze", node("GatherElements", means, place, axis=1), "axis")


def run_onnx(model: bytes, obs: np.ndarray) -> np.ndarray:
    """Run the graph with onnxruntime."""
    session = _import("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["action"], {"obs": np.asarray(obs, np.float32)})[0]
