"""What the scripts share: interleaved timing, and refilling the marked parts of a page."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCHMARKS = DOCS / "benchmarks.md"
ROUNDS = 7
SETTLE = 0.02  # seconds until waiting threads are asleep
# An installed package has its bytecode: new processes are not to compile ours every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
PEERS = ("netcal", "torchmetrics", "probmetrics", "uncertainty-calibration")


def fill(page: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- name -->`` and ``<!-- end -->``; the page must have them once."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    new, count = pattern.subn(lambda match: f"{match[1]}{text.rstrip()}\n{match[2]}", old)
    if count != 1:
        raise SystemExit(f"{page.name} must have one part marked {name!r}, it has {count}")
    page.write_text(new, encoding="utf-8")


def save_picture(figure: Figure, path: Path, *, most: int = 60_000) -> None:
    """Write a picture with a palette of 256 colours, which looks the same and takes half the room.

    ``most`` is the number of bytes that it may take.
    """
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, dpi=100)
    colours = Image.open(drawn).convert("RGB")
    # This method keeps rare colours, such as those of thin lines, apart.
    few = colours.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    print(path.name, size)
    if size > most:
        raise SystemExit(f"{path.name} is larger than {most} bytes")


def best(contestants: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Best seconds of each contestant over interleaved rounds.

    After a call, PyTorch's threads keep their cores busy for some milliseconds, waiting for another
    one. Contestants start when that is over: the one after PyTorch would pay for it.
    """
    times = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(SETTLE)
            start = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """What was measured beside its target, and whether that is met."""
    marked = [(what, measured, target, met(measured, target)) for what, measured, target in rows]
    return markdown(["what", "measured", "target", "met"], marked)


def met(measured: str, target: str) -> str:
    """Whether the first number measured keeps to a target such as "≤ 2 %"; "" without a target.

    The target "yes" asks for a yes.
    """
    if target == "yes":
        return "yes" if measured == target else "**no**"
    bound = re.match(r"([≤≥<]) ([\d.]+)", target)
    if bound is None:
        return ""
    value, limit = float(re.search(r"[\d.]+", measured)[0]), float(bound[2])
    kept = {"≤": value <= limit, "≥": value >= limit, "<": value < limit}[bound[1]]
    return "yes" if kept else "**no**"


def machine() -> str:
    names = ("numpy", "scipy", "torch", "pyarrow", *PEERS)
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
        f"{packages}."
    )
