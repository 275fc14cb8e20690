"""The operations of calibrators recorded as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.extras import import_extra
from calibrant._core.files import replacing
from calibrant.calibrators._ops import IMPOSSIBLE

OPSET = 17
INPUT, OUTPUT = "logits", "probabilities"


class Node:
    """A value of the graph. Arithmetic and comparisons add nodes to it."""

    __array_ufunc__ = None  # so that NumPy arrays on the left defer to the methods below

    def __init__(self, ops: OnnxOps, name: str) -> None:
        self.ops, self.name = ops, name

    def __add__(self, other: Any) -> Node:
        return self.ops.add("Add", self, other)

    def __sub__(self, other: Any) -> Node:
        return self.ops.add("Sub", self, other)

    def __mul__(self, other: Any) -> Node:
        return self.ops.add("Mul", self, other)

    def __truediv__(self, other: Any) -> Node:
        return self.ops.add("Div", self, other)

    def __radd__(self, other: Any) -> Node:
        return self.ops.add("Add", other, self)

    def __rsub__(self, other: Any) -> Node:
        return self.ops.add("Sub", other, self)

    def __rmul__(self, other: Any) -> Node:
        return self.ops.add("Mul", other, self)

    def __neg__(self) -> Node:
        return self.ops.add("Neg", self)

    def __gt__(self, other: Any) -> Node:
        return self.ops.add("Greater", self, other)


class OnnxOps:
    """Collects nodes and constants; every float is of one dtype."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        import onnx

        self.onnx, self.dtype = onnx, dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Keep a number or an array with the graph."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Node:
        """Append a node of this kind."""
        names = [
            x.name if isinstance(x, Node) else self.constant(float(x) if isinstance(x, int) else x)
            for x in inputs
        ]
        out = f"x{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [out], **attributes))
        return Node(self, out)

    def exp(self, x: Any) -> Node:
        return self.add("Exp", x)

    def log(self, x: Any) -> Node:
        return self.add("Log", x)

    def sum(self, x: Any) -> Node:
        return self.add("ReduceSum", x, np.array([1]), keepdims=1)

    def max(self, x: Any) -> Node:
        return self.add("ReduceMax", x, axes=[1], keepdims=1)

    def maximum(self, x: Any, low: Any) -> Node:
        return self.add("Max", x, low)

    def minimum(self, x: Any, high: Any) -> Node:
        return self.add("Min", x, high)

    def where(self, mask: Any, a: Any, b: Any) -> Node:
        return self.add("Where", mask, a, b)

    def matmul(self, x: Any, w: Any) -> Node:
        return self.add("MatMul", x, w)

    def log_softmax(self, z: Any) -> Node:
        # onnxruntime's own LogSoftmax gives -inf where its softmax underflows.
        shifted: Node = z - self.max(z)
        return shifted - self.log(self.sum(self.exp(shifted)))

    def lift(self, z: Any) -> Node:
        low = self.add("Equal", z, -np.inf)
        return self.where(low, self.max(z) - IMPOSSIBLE, z)

    def possible(self, z: Any) -> Node:
        return self.add("Greater", z, -np.inf)

    def is_top(self, z: Any) -> Node:
        top = self.add("ArgMax", z, axis=1, keepdims=1)
        shape = self.add("Shape", z)
        width = self.add("Gather", shape, np.array(1))
        columns = self.add("Range", np.array(0), width, np.array(1))
        return self.add("Equal", columns, top)

    def bucket(self, x: Any, edges: Any) -> Node:
        below: Any = self.add("Unsqueeze", x, np.array([2])) > edges[None]
        counted = self.add("Cast", below, to=self.onnx.TensorProto.INT64)
        return self.add("ReduceSum", counted, np.array([2]), keepdims=0)

    def take(self, table: Any, index: Any) -> Node:
        return self.add("GatherElements", np.ascontiguousarray(table.T), index, axis=0)

    def column(self, x: Any, k: int) -> Node:
        """Column k, as a matrix of one column."""
        return self.add("Gather", x, np.array([k]), axis=1)

    def cast(self, x: Any, dtype: type[np.floating[Any]]) -> Node:
        """Change the precision."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", x, to=kind)


def write(calibrator: Any, path: str | Path) -> None:
    """Write a model from float32 logits (N, K) to float32 probabilities (N, K)."""
    import_extra("onnx", "to_onnx")
    ops = OnnxOps(_precision(calibrator))
    probs = _probabilities(ops, ops.cast(Node(ops, INPUT), ops.dtype), calibrator)
    _save(ops, probs, calibrator.num_classes_ or "K", path)


def write_labels(calibrators: Sequence[Any], path: str | Path) -> None:
    """Write a model from float32 log-odds (N, L) to float32 probabilities (N, L).

    Each column goes through the calibrator of its label, as class 1 of two.
    """
    import_extra("onnx", "to_onnx")
    ops = OnnxOps(_precision(calibrators[0]))
    odds, columns = ops.cast(Node(ops, INPUT), ops.dtype), []
    for k, calibrator in enumerate(calibrators):
        column = ops.column(odds, k)
        both = ops.add("Concat", column - column, column, axis=1)
        columns.append(ops.column(_probabilities(ops, both, calibrator), 1))
    _save(ops, ops.add("Concat", *columns, axis=1), len(calibrators), path)


def _precision(calibrator: Any) -> type[np.floating[Any]]:
    """Probabilities are looked up in float64, so that no value falls into a neighbouring bin."""
    return np.float64 if calibrator.gives == "probs" else np.float32


def _probabilities(ops: OnnxOps, z: Node, calibrator: Any) -> Node:
    out: Node = calibrator.mapped(ops, z, calibrator)
    return out if calibrator.gives == "probs" else ops.add("Softmax", out, axis=1)


def _save(ops: OnnxOps, probs: Node, width: int | str, path: str | Path) -> None:
    """Check the graph that ends in ``probs`` and write it."""
    onnx, helper = import_extra("onnx", "to_onnx"), import_extra("onnx.helper", "to_onnx")
    last = ops.cast(probs, np.float32)
    last.ops.nodes[-1].output[0] = OUTPUT
    shape, kind = ["N", width], onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        ops.nodes,
        "calibrator",
        [helper.make_tensor_value_info(INPUT, kind, shape)],
        [helper.make_tensor_value_info(OUTPUT, kind, shape)],
        ops.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, producer_name="calibrant", ir_version=9)
    onnx.checker.check_model(model)
    with replacing(path) as temporary:
        onnx.save(model, str(temporary))
