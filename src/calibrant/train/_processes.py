"""Distributed training: ranks, devices and gathering of results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """Rank of this process among ``count``, and the device it works on."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this one writes files and shows progress."""
        return self.rank == 0

    def share(self, indices: Tensor) -> Tensor:
        """Return this process's part of the samples of a step; a remainder is left out."""
        if self.count == 1:
            return indices
        size = len(indices) // self.count
        return indices[self.rank * size : (self.rank + 1) * size]

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the first one's values, such as the running means of a network."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def agree(self, choice: str) -> str:
        """The first process's choice, for all."""
        if self.count == 1:
            return choice
        box = [choice]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def merge(self, values: Tensor) -> Tensor:
        """Fill what is NaN here from the process that has it."""
        if self.count == 1:
            return values
        missing = values.isnan()
        both = torch.stack([values.nan_to_num(0.0), (~missing).to(values.dtype)]).to(self.device)
        dist.all_reduce(both)
        total, count = both.cpu().unbind()
        return torch.where(count > 0, total, torch.nan)

    def join(self, rows: NDArray[np.float32], total: int) -> NDArray[np.float32]:
        """Interleave the rows ``rank``, ``rank + count``, … of all processes into one array."""
        if self.count == 1:
            return rows
        most = -(-total // self.count)
        padded = torch.zeros(most, *rows.shape[1:])
        padded[: len(rows)] = torch.from_numpy(rows)
        parts = [torch.empty_like(padded, device=self.device) for _ in range(self.count)]
        dist.all_gather(parts, padded.to(self.device))
        return torch.stack(parts, 1).flatten(0, 1)[:total].cpu().numpy()


@contextmanager
def processes() -> Iterator[Processes]:
    """Join the run that ``torchrun`` started, if any, and leave it at the end."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if count == 1:
        yield Processes(device=device)
        return
    ours = not dist.is_initialized()
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if ours:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        if ours:
            dist.destroy_process_group()
