"""Calibrators as PyTorch modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import refuse
from calibrant._core.extras import import_extra
from calibrant.calibrators._ops import TorchOps


def import_torch() -> Any:
    """PyTorch, or an error that says how to install it."""
    return import_extra("torch", "This")


def make_module(calibrator: Any) -> Any:
    """A module from logits to logits whose softmax is calibrated.

    Methods that give probabilities work in float64, since a bin's edge is an edge, and give their
    logarithms.
    """
    torch = import_torch()
    ops, exact = TorchOps(), calibrator.gives == "probs"
    dtype = torch.float64 if exact else torch.float32

    class CalibrationModule(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Calibrated logits of logits."""

        def __init__(self) -> None:
            super().__init__()
            for path, value in arrays_of(calibrator):
                self.register_buffer(path, torch.tensor(value, dtype=dtype))

        def forward(self, logits: Any) -> Any:
            """Map logits (N, K)."""
            learned = _View(calibrator, self, "")
            if not exact:
                return calibrator.mapped(ops, logits, learned)
            probs = calibrator.mapped(ops, logits.to(dtype), learned)
            return torch.log(probs).to(logits.dtype)

    return CalibrationModule()


class _View:
    """A calibrator whose learned arrays are the buffers of a module."""

    def __init__(self, calibrator: Any, module: Any, path: str) -> None:
        self._calibrator, self._module, self._path = calibrator, module, path

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._calibrator, name)
        if name in self._calibrator.learned and isinstance(value, (np.ndarray, float)):
            return getattr(self._module, self._path + name)
        if isinstance(value, list) and name.endswith("_"):
            return [
                _View(part, self._module, f"{self._path}{name}{k}_") for k, part in enumerate(value)
            ]
        if hasattr(value, "forward"):
            return _View(value, self._module, f"{self._path}{name}_")
        return value


def arrays_of(calibrator: Any, path: str = "") -> Any:
    """Names and values of the learned arrays, those of inner calibrators included."""
    for name, value in vars(calibrator).items():
        if not name.endswith("_"):
            continue
        if isinstance(value, (np.ndarray, float)):
            yield path + name, value
        elif isinstance(value, list):
            for k, part in enumerate(value):
                yield from arrays_of(part, f"{path}{name}{k}_")
        elif hasattr(value, "forward"):
            yield from arrays_of(value, f"{path}{name}_")


def fold(linear: Any, weight: Float64, bias: Float64) -> Any:
    """A copy of a linear layer followed by ``x @ weight.T + bias``."""
    torch = import_torch()
    if not isinstance(linear, torch.nn.Linear):
        rule, advice = "must be a torch.nn.Linear", "Pass the model's last layer."
        raise refuse("linear", rule, f"got {type(linear).__name__}", advice)
    if linear.out_features != len(bias):
        rule = f"must have {len(bias)} outputs, one per class"
        raise refuse("linear", rule, f"got {linear.out_features}", "Pass the model's last layer.")
    old = linear.weight.detach().double().cpu().numpy()
    shift = 0.0 if linear.bias is None else linear.bias.detach().double().cpu().numpy()
    folded = torch.nn.Linear(linear.in_features, linear.out_features)
    with torch.no_grad():
        folded.weight.copy_(torch.from_numpy(weight @ old))
        folded.bias.copy_(torch.from_numpy(weight @ np.broadcast_to(shift, len(bias)) + bias))
    return folded.to(device=linear.weight.device, dtype=linear.weight.dtype)
