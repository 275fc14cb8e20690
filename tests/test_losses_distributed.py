"""Two processes that gather equal one process: value, parts and gradient of every loss."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from calibrant._core.processes import fork_server
from calibrant.losses import LOSSES, Objective
from calibrant.study._local import PRELOAD
from tests.close import assert_close
from tests.test_all_losses import CONFIGURATIONS

RANKS = 2
GATHERED = [
    (name, options)
    for name, options in CONFIGURATIONS
    if "gather" in LOSSES[name].options or (LOSSES[name].per_sample and not LOSSES[name].per_batch)
]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """24 samples; the two halves leave out different numbers of them."""
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(24, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (24,), generator=generator)
    y[[0, 5, 7, 20]] = -1
    return x, y


def objectives() -> dict[str, Objective]:
    made: dict[str, Objective] = {}
    for number, (name, options) in enumerate(GATHERED):
        spec: Any = {"name": name, **options}
        made[f"{number} {name}"] = Objective(spec, ignore_index=-1, gather=True)
    weights = [1.0, 0.2, 3.0, 1.5]
    made["sum"] = Objective(
        "focal",
        ["mmce", "soft_binned_ece"],
        [1.0, 0.5],
        class_weights=weights,
        ignore_index=-1,
        gather=True,
    )
    return made


def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    found = {}
    for name, objective in objectives().items():
        model.zero_grad()
        total = objective(model(x), y)
        total.backward()
        found[name] = [total.detach(), *(p.grad.clone() for p in model.parameters())]
    return found


def curvatures(z: torch.Tensor, y: torch.Tensor, along: torch.Tensor) -> dict[str, torch.Tensor]:
    """Second derivative of each objective by its logits, along a direction."""
    found = {}
    for name, objective in objectives().items():
        z = z.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(z, y), z, create_graph=True)
        # Added so that every objective has a graph, those that are linear in the logits too.
        slope = (along * gradient).sum() + (along * z**2).sum()
        (found[name],) = torch.autograd.grad(slope, z)
        found[name] -= 2 * along * z.detach()
    return found


def logits_of_all() -> tuple[torch.Tensor, torch.Tensor]:
    z = network()(data()[0]).detach()
    return z, torch.linspace(-1, 2, z.numel(), dtype=z.dtype).view_as(z)


def work(rank: int, port: int, out: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    torch.set_num_threads(1)
    x, y = data()
    half = slice(12 * rank, 12 * rank + 12)
    model = DistributedDataParallel(network())
    found = gradients(model, x[half], y[half])
    z, along = logits_of_all()
    second = curvatures(z[half], y[half], along[half])
    if rank == 0:
        torch.save((found, second), out)
    dist.destroy_process_group()


# PyTorch's own processes warn of their own deprecations.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_two_processes_equal_one(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    out = tmp_path / "rank0.pt"
    fork_server(PRELOAD)  # it loads PyTorch once for both
    mp.start_processes(work, args=(port, str(out)), nprocs=RANKS, start_method="forkserver")
    together, second = torch.load(out, weights_only=True)
    alone = gradients(network(), *data())
    assert together.keys() == alone.keys()
    for name, tensors in alone.items():
        for a, b in zip(tensors, together[name], strict=True):
            assert_close(b, a, rtol=1e-10, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
    z, along = logits_of_all()
    for name, want in curvatures(z, data()[1], along).items():
        # Like the gradient that DistributedDataParallel averages: RANKS times that of one process.
        assert_close(
            second[name],
            RANKS * want[:12],
            rtol=1e-9,
            atol=1e-12,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def test_every_batch_loss_gathers_but_the_ranking() -> None:
    """Neighbours in the batch are the ranking's pairs; across ranks it has none."""
    left = {name for name, loss in LOSSES.items() if not loss.per_sample}
    left -= {name for name, _ in GATHERED}
    assert left == {"correctness_ranking"}
