"""Small charts that need no script: reliability, intervals by name, and lines, as SVG.

Colours come from the style of the page, so that the charts follow its theme and print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calibrant._core.formatting import show_number
from calibrant.inference import Interval
from calibrant.metrics import Reliability
from calibrant.report._html import Html, clean, tag

# Length of a name that fits beside its interval.
LONGEST_NAME = 28
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEFT, TOP, RIGHT, BOTTOM = 46.0, 10.0, 12.0, 38.0


class Frame:
    """The inside of a chart: where data lie in pixels."""

    def __init__(self, width: float, height: float, x: Sequence[float], y: Sequence[float]) -> None:
        self.width, self.height = width, height
        self.x_range, self.y_range = (x[0], x[1]), (y[0], y[1])

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (value - low) / (high - low) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return TOP + (high - value) / (high - low) * (self.height - TOP - BOTTOM)

    def path(self, points: Sequence[tuple[float, float]], class_: str) -> Html:
        """A line through points."""
        steps = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        return tag("polyline", points=steps, class_=class_)

    def axes(self, x_label: str, y_label: str, *, percent: bool = True) -> list[Html]:
        """Ticks, grid and names of the axes."""
        parts = []
        for value in _ticks(*self.x_range):
            at = self.x(value)
            parts.append(self.path([(value, self.y_range[0]), (value, self.y_range[1])], "grid"))
            low = self.height - BOTTOM
            parts.append(_text(_tick(value, percent=percent), at, low + 14, "middle"))
        for value in _ticks(*self.y_range):
            parts.append(self.path([(self.x_range[0], value), (self.x_range[1], value)], "grid"))
            shown = _tick(value, percent=percent and self.y_range[1] >= 1)
            parts.append(_text(shown, LEFT - 6, self.y(value) + 4, "end"))
        middle = (LEFT + self.width - RIGHT) / 2
        parts.append(_text(x_label, middle, self.height - 6, "middle"))
        centre = (TOP + self.height - BOTTOM) / 2
        turned = f"rotate(-90 11 {centre:.0f})"
        parts.append(tag("text", y_label, x=11, y=f"{centre:.0f}", transform=turned, class_="axis"))
        return parts


def reliability_chart(
    found: Reliability, label: str, *, size: float, x_label: str, y_label: str
) -> Html:
    """Probability against frequency, with intervals and the share of samples in each bin."""
    frame = Frame(size, size, (0.0, 1.0), (0.0, 1.0))
    parts = frame.axes(x_label, y_label) if size >= FULL_SIZE else _few_ticks(frame)
    full = [b for b in range(len(found)) if found.count[b] > 0]
    most = max((float(found.count[b]) for b in full), default=1.0)
    for b in full:
        left, right = (frame.x(float(found.edges[b + k])) for k in (0, 1))
        height = SHARE_HEIGHT * (frame.y(0) - frame.y(1)) * float(found.count[b]) / most
        spot = {"x": f"{left:.1f}", "y": f"{frame.y(0) - height:.1f}"}
        box = {"width": f"{max(right - left - 1, 0.5):.1f}", "height": f"{height:.1f}"}
        parts.append(tag("rect", **spot, **box, class_="share"))
    parts.append(frame.path([(0, 0), (1, 1)], "ideal"))
    points = [(float(found.confidence[b]), float(found.accuracy[b])) for b in full]
    parts.append(frame.path(points, "line"))
    for b, (at, value) in zip(full, points, strict=True):
        ends = [(at, float(found.lower[b])), (at, float(found.upper[b]))]
        parts.append(frame.path(ends, "whisker"))
        said = (
            f"{x_label} {_tick(at)}, {y_label} {_tick(value)} "
            f"({_tick(ends[0][1])} to {_tick(ends[1][1])}), {found.count[b]:,.0f} samples"
        )
        parts.append(_dot(frame.x(at), frame.y(value), said))
    return _svg(label, size, size, parts)


FULL_SIZE = 260.0
SHARE_HEIGHT = 0.18  # of the chart, for the bin with most samples


def _few_ticks(frame: Frame) -> list[Html]:
    """The ends and the middle only, for small diagrams."""
    parts = []
    for value in (0.0, 0.5, 1.0):
        parts.append(frame.path([(value, 0), (value, 1)], "grid"))
        parts.append(frame.path([(0, value), (1, value)], "grid"))
        parts.append(_text(_tick(value), frame.x(value), frame.height - BOTTOM + 14, "middle"))
        parts.append(_text(_tick(value), LEFT - 6, frame.y(value) + 4, "end"))
    return parts


def forest_chart(rows: Mapping[str, Interval], label: str, *, mean: float | None = None) -> Html:
    """One line per name: the value and its interval. ``mean`` is drawn as a vertical line."""
    names, line = list(rows), 24.0
    left, width = 230.0, 720.0
    height = TOP + line * len(names) + BOTTOM
    values = [v for f in rows.values() for v in (f.value, f.low, f.high) if not math.isnan(v)]
    values += [] if mean is None else [mean]
    low, high = min([0.0, *values]), max([0.01, *values])

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - 20)

    bottom = height - BOTTOM
    parts = []
    for value in _ticks(low, high):
        at = f"{x(value):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=f"{bottom:.1f}", class_="grid"))
        parts.append(_text(_tick(value), x(value), bottom + 14, "middle"))
    if mean is not None:
        at = f"{x(mean):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=f"{bottom:.1f}", class_="ideal"))
    for k, (name, found) in enumerate(rows.items()):
        y = TOP + line * (k + 0.5)
        parts.append(_text(_short(name), left - 12, y + 4, "end"))
        if not math.isnan(found.low):
            ends = {"x1": f"{x(found.low):.1f}", "x2": f"{x(found.high):.1f}"}
            parts.append(tag("line", **ends, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="whisker"))
        if not math.isnan(found.value):
            parts.append(_dot(x(found.value), y, f"{name}: {_tick(found.value, decimals=2)}"))
    parts.append(_text(label, (left + width) / 2, height - 6, "middle"))
    return _svg(label, width, height, parts)


def lines_chart(
    series: Mapping[str, Sequence[tuple[float, float]]], label: str, *, x_label: str, y_label: str
) -> Html:
    """Lines, the first in colour and the others dashed; each is named where it ends."""
    points = [point for line in series.values() for point in line]
    highest = max([0.01, *(y for _, y in points)])
    lowest = max(min([0.0, *(y for _, y in points)]), -0.3 * highest)  # treat all falls far below
    last = max(x for x, _ in points)
    frame = Frame(560.0, 300.0, (0.0, last), (lowest, 1.05 * highest))
    parts = frame.axes(x_label, y_label)
    legend = []
    for k, (name, line) in enumerate(series.items()):
        kind = ("line", "ideal", "other")[min(k, 2)]
        parts.append(frame.path([point for point in line if point[1] >= lowest], kind))
        y = TOP + 14 + 18 * k
        legend.append(tag("line", x1=380, x2=408, y1=y, y2=y, class_=kind))
        legend.append(_text(_short(name), 414, y + 4, "start"))
    return _svg(label, frame.width, frame.height, [*parts, *legend])


def ranked_chart(values: Sequence[float], label: str, *, x_label: str, y_label: str) -> Html:
    """Values from the largest to the smallest, as bars."""
    frame = Frame(720.0, 220.0, (0.0, float(len(values))), (0.0, 1.05 * max([0.001, *values])))
    parts = frame.axes(x_label, y_label, percent=False)[-2:]
    for value in _ticks(*frame.y_range):
        parts.append(frame.path([(0, value), (len(values), value)], "grid"))
        parts.append(_text(_tick(value), LEFT - 6, frame.y(value) + 4, "end"))
    step = frame.x(1) - frame.x(0)
    for k, value in enumerate(values):
        spot = {"x": f"{frame.x(k):.2f}", "y": f"{frame.y(value):.1f}"}
        box = {
            "width": f"{max(0.9 * step, 0.4):.2f}",
            "height": f"{frame.y(0) - frame.y(value):.1f}",
        }
        parts.append(tag("rect", **spot, **box, class_="bar"))
    return _svg(label, frame.width, frame.height, parts)


def _svg(label: str, width: float, height: float, parts: Sequence[Html]) -> Html:
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag(
        "svg",
        tag("title", label),
        *parts,
        viewBox=box,
        style=f"max-width:{width:.0f}px",
        role="img",
        aria_label=label,
        class_="figure",
    )


def _dot(x: float, y: float, said: str) -> Html:
    return tag("circle", tag("title", said), cx=f"{x:.1f}", cy=f"{y:.1f}", r="3.5", class_="dot")


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _short(name: str) -> str:
    text = clean(name)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _tick(value: float, *, percent: bool = True, decimals: int | None = None) -> str:
    if not percent:
        return f"{value:g}"
    digits = decimals if decimals is not None else 0 if abs(100 * value) % 1 < 1e-6 else 1  # noqa: PLR2004
    return show_number(value, percent=True, decimals=digits)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, four to eight of them.

    >>> [round(x, 3) for x in _ticks(0.0, 1.0)]
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> [round(x, 3) for x in _ticks(-0.01, 0.06)]
    [-0.01, 0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06]
    """
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]
