"""PyTorch's optimisers without its compiler."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DECORATED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def uncompiled(kind: type[torch.optim.Optimizer]) -> type[Any]:
    """The same optimiser without the decorators that keep PyTorch's compiler away from it.

    At their first call these load the compiler, which takes as long as PyTorch itself.
    """
    import torch

    plain = {name: inspect.unwrap(getattr(kind, name)) for name in DECORATED}
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), plain)
