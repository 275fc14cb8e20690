"""L-BFGS and Newton's method for convex functions, steered by gradients alone.

SciPy's line search compares function values, and the value of a mean over 50,000 x 1,000 float32
scores is known to about 1e-8: it stops at gradients of 1e-4. Along a line the slope of a convex
function rises, so the slope itself tells whether a step was too short or too long, down to the
rounding of the gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from calibrant._core.arrays import Float64, dot

Product = Callable[[Float64], Float64]
MEMORY = 20
# Conjugate directions of a Newton step.
CONJUGATE = 250
TRIALS = 40
# A step is accepted if it leaves at most this fraction of the slope.
CURVATURE = 0.9


def descend(
    gradient: Callable[[Float64], Float64],
    x: Float64,
    g: Float64,
    *,
    inverse: Callable[[Float64], Float64],
    is_small: Callable[[Float64], bool],
    steps: int,
) -> tuple[Float64, Float64]:
    """Go down from x, whose gradient is g, until the gradient is small.

    ``inverse`` multiplies by the inverse of about the curvature. Returns x and its gradient. Also
    ends after a number of steps, and where rounding stops all progress, so the caller looks at the
    gradient.
    """
    pairs: deque[tuple[Float64, Float64, float]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        if is_small(g):
            break
        direction = -_times_inverse(g, pairs, inverse)
        slope = dot(g, direction)
        if not slope < 0:  # rounding errors have corrupted the memory
            pairs.clear()
            direction = -inverse(g)
            slope = dot(g, direction)
        new, new_g = _line(gradient, x, direction, slope)
        change, bend = new - x, new_g - g
        product = dot(change, bend)
        if product <= 0 or not np.isfinite(new_g).all():
            if not pairs:
                break
            pairs.clear()
            continue
        pairs.append((change, bend, product))
        x, g = new, new_g
    return x, g


def newton(
    gradient: Callable[[Float64], Float64],
    x: Float64,
    g: Float64,
    *,
    curvature: Callable[[Float64], tuple[Product, Product]],
    is_small: Callable[[Float64], bool],
    steps: int,
) -> tuple[Float64, Float64]:
    """The same with the curvature itself, for functions on which L-BFGS is too slow.

    ``curvature`` gives, at x, products with the curvature and with about its inverse.
    """
    first = dot(g, g)
    for _ in range(steps):
        if is_small(g):
            break
        times, inverse = curvature(x)
        closeness = min(0.1, (dot(g, g) / first) ** 0.25)
        direction = -_solved(times, inverse, g, closeness)
        slope = dot(g, direction)
        if not slope < 0:
            break
        x, g = _line(gradient, x, direction, slope)
    return x, g


def _solved(times: Product, inverse: Product, g: Float64, closeness: float) -> Float64:
    """Curvature^-1 g by conjugate gradients, to a part of its length."""
    x, rest = np.zeros_like(g), g.copy()
    near = inverse(rest)
    along, product = near.copy(), dot(rest, near)
    goal = closeness**2 * product
    for _ in range(CONJUGATE):
        bend = times(along)
        step = product / dot(along, bend)
        x += step * along
        rest -= step * bend
        near = inverse(rest)
        before, product = product, dot(rest, near)
        if product <= goal:
            break
        along = near + product / before * along
    return x


def _times_inverse(
    g: Float64,
    pairs: deque[tuple[Float64, Float64, float]],
    inverse: Callable[[Float64], Float64],
) -> Float64:
    """The inverse curvature remembered in ``pairs``, times ``g`` (the two-loop recursion)."""
    q, factors = g.copy(), []
    for change, bend, product in reversed(pairs):
        factor = dot(change, q) / product
        q -= factor * bend
        factors.append(factor)
    q = inverse(q)
    if pairs:
        change, bend, product = pairs[-1]
        q *= product / dot(bend, inverse(bend))
    for (change, bend, product), factor in zip(pairs, reversed(factors), strict=True):
        q += (factor - dot(bend, q) / product) * change
    return q


def _line(
    gradient: Callable[[Float64], Float64], x: Float64, direction: Float64, slope: float
) -> tuple[Float64, Float64]:
    """A point along the line where the slope is flatter; the minimum lies between low and high."""
    low, high, step = 0.0, np.inf, 1.0
    low_slope = slope
    for _ in range(TRIALS):
        new = x + step * direction
        g = gradient(new)
        here = dot(g, direction)
        if abs(here) <= CURVATURE * abs(slope):
            break
        if here < 0:
            low, low_slope = step, here
            step = 4 * step if high == np.inf else (low + high) / 2
        else:  # too far (or not a number): where the slope would be 0 if it were straight
            high = step
            share = low_slope / (low_slope - here) if np.isfinite(here) else 0.5
            step = low + (high - low) * min(max(share, 0.05), 0.95)
    return new, g
