"""Losses: forward and backward against PyTorch's cross-entropy; rewrites docs/benchmarks.md.

Every contestant runs in turn, several rounds, and the best round of each counts. ``ratio`` is the
time of value and gradient over that of ``F.cross_entropy(z, y)``, its mean included; per-sample
losses are averaged, batch penalties are added to the cross-entropy.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from calibrant.losses import LOSSES, Objective
from calibrant.models import build
from common import BENCHMARKS, best, fill, machine, markdown, met, table

SIZES = {(128, 10): 100, (4096, 1000): 1}
OPTIONS: dict[str, dict] = {"avuc": {"threshold": 1.0}}


FLOOR, BY_SAMPLE = "floor", "F.cross_entropy by sample"


class Kernels(TorchDispatchMode):
    """Counts what PyTorch executes, views left out."""

    count = 0

    def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):
        self.count += not kernel.is_view
        return kernel(*args, **(kwargs or {}))


def kernels_of(step: Callable[[], None]) -> int:
    with Kernels() as found:
        step()
    return found.count


def contestants(num_samples: int, num_classes: int, repeats: int) -> dict[str, Callable[[], None]]:
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(num_samples, num_classes, generator=generator)
    y = torch.randint(num_classes, (num_samples,), generator=generator)
    rate = torch.rand(num_samples, generator=generator)
    z.requires_grad_()

    def timed(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(repeats):
                z.grad = None
                loss(z, y).backward()

        return run

    found = {
        FLOOR: timed(F.cross_entropy),
        BY_SAMPLE: timed(lambda z, y: F.cross_entropy(z, y, reduction="none").mean()),
    }
    for name, loss in LOSSES.items():
        options = dict(OPTIONS.get(name, {}))
        options |= dict.fromkeys(loss.per_batch, rate)

        def sample(z: Tensor, y: Tensor, f=loss.function, options=options) -> Tensor:
            return f(z, y, **options).mean()

        def added(z: Tensor, y: Tensor, f=loss.function, options=options) -> Tensor:
            return F.cross_entropy(z, y) + f(z, y, **options)

        found[name] = timed(sample if loss.per_sample else added)
    return found


def ratios() -> list[tuple[str, ...]]:
    """The ratios at each size."""
    columns = []
    for (n, k), repeats in SIZES.items():
        times = best(contestants(n, k, repeats), 25)
        floor = times.pop(FLOOR)
        print(f"{n} x {k}: F.cross_entropy {1e6 * floor / repeats:.0f} us")
        columns.append({name: seconds / floor for name, seconds in times.items()})
    rows = []
    for name in columns[0]:
        batch = name in LOSSES and not LOSSES[name].per_sample
        label = f"F.cross_entropy + {name}" if batch else name
        measured = [f"{column[name]:.2f}" for column in columns]
        targets = _targets(name, batch=batch) if name in LOSSES else ()
        kept = [met(one, target) for one, target in zip(measured, targets, strict=False)]
        rows.append((label, *measured, ", ".join(targets), ", ".join(kept)))
    return rows


def kernels() -> list[tuple[str, ...]]:
    """How many of PyTorch's kernels the losses take; our own calls are not counted."""
    counts = {name: kernels_of(step) for name, step in contestants(*min(SIZES), 1).items()}
    least = counts.pop(FLOOR)
    rows = [("PyTorch's kernels of `F.cross_entropy` and its gradient", str(least), "")]
    for what, batch in (("per-sample losses", False), ("`F.cross_entropy` + a penalty", True)):
        some = [counts[name] for name, loss in LOSSES.items() if loss.per_sample != batch]
        rows.append((f"… of {what}", f"{min(some)} to {max(some)}", ""))
    return rows


def _targets(name: str, *, batch: bool) -> tuple[str, str]:
    """At 128 × 10, and at 4,096 × 1,000."""
    if name in ("avuc", "soft_avuc"):
        return "≤ 4", "≤ 2.6"
    return ("≤ 4", "≤ 3") if batch else ("≤ 2.5", "≤ 2")


def training_step() -> list[tuple[str, ...]]:
    """What each objective adds to a step, as a share of the whole step."""
    torch.manual_seed(0)
    net = build("resnet20", kind="image", num_classes=10, size=(3, 32, 32))
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.randint(10, (128,))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(*, narrow: bool) -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            z = net(x)
        F.cross_entropy(z.float(), y).backward()
        optimiser.step()

    steps = best({"bf16": lambda: step(narrow=True), "fp32": lambda: step(narrow=False)}, 4)
    precision, whole = min(steps.items(), key=lambda item: item[1])
    z = torch.randn(128, 10, dtype=torch.bfloat16, requires_grad=True)
    rate = torch.rand(128)
    runs: dict[str, Callable[[], None]] = {}

    def timed(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(20):
                z.grad = None
                loss().backward()

        return run

    runs["plain"] = timed(lambda: F.cross_entropy(z.float(), y))
    for name, loss in LOSSES.items():
        spec = {"name": name, **OPTIONS.get(name, {})}
        primary = loss.role == "primary"
        objective = Objective(spec) if primary else Objective("cross_entropy", spec, weight=0.1)
        more = dict.fromkeys(loss.per_batch, rate)
        runs[str(objective)] = timed(lambda o=objective, m=more: o(z, y, **m))
    times = best(runs, 9)
    plain = times.pop("plain")
    print(f"step {1e3 * whole:.0f} ms")
    worst = max(times, key=times.get)
    return [
        (f"ResNet-20 step, 128 images of 32 × 32, {precision}", f"{1e3 * whole:.0f} ms", ""),
        (
            f"largest overhead of an objective {worst.removeprefix('Objective')}",
            f"{100 * (times[worst] - plain) / 20 / whole:.2f} %",
            "≤ 3 %",
        ),
    ]


MEMORY = """
import resource, torch
from calibrant import losses
z = torch.randn(4096, 10).requires_grad_(); y = torch.randint(10, (4096,))
losses.mmce(z[:64], y[:64]).backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(losses.mmce(z, y) + losses.mmce_weighted(z, y)).backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory() -> list[tuple[str, ...]]:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    return [
        (
            "peak extra memory, mmce + mmce_weighted at N = 4,096",
            f"{int(done.stdout) / 1024:.1f} MiB",
            "≤ 64 MiB",
        )
    ]


def main() -> None:
    head = ["ratio to `F.cross_entropy`", "128 × 10", "4,096 × 1,000", "target", "met"]
    measured = ratios()
    rest = table([*kernels(), *training_step(), *memory()])
    text = "\n\n".join([machine(), markdown(head, measured), rest])
    fill(BENCHMARKS, "losses", text)
    print(text)


if __name__ == "__main__":
    main()
