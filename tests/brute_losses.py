"""Every loss once more: in plain Python loops, straight from its formula, in float64.

``logits`` is a list of rows, ``targets`` a list of target distributions. Nothing here is shared
with the package. Per-sample losses return a list, batch losses a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Rows = Sequence[Sequence[float]]


def softmax(z: Sequence[float]) -> list[float]:
    top = max(z)
    e = [math.exp(v - top) for v in z]
    return [v / math.fsum(e) for v in e]


def log_softmax(z: Sequence[float]) -> list[float]:
    top = max(z)
    total = math.log(math.fsum(math.exp(v - top) for v in z))
    return [v - top - total for v in z]


def true_class(f: Callable[[float, list[float]], float]) -> Callable[..., list[float]]:
    """A loss that is f(p_k, all p) · -log p_k, averaged over the target."""

    def loss(logits: Rows, targets: Rows, **options: float) -> list[float]:
        values = []
        for z, t in zip(logits, targets, strict=True):
            p, log_p = softmax(z), log_softmax(z)
            values.append(
                math.fsum(
                    tk * f(p[k], p, **options) * -log_p[k] for k, tk in enumerate(t) if tk != 0
                )
            )
        return values

    return loss


cross_entropy = true_class(lambda _p, _all: 1.0)
focal = true_class(lambda p, _all, gamma=3.0: (1 - p) ** gamma)
inverse_focal = true_class(lambda p, _all, gamma=2.0: (1 + p) ** gamma)
sample_dependent_focal = true_class(
    lambda p, _all, gamma_low=5.0, gamma_high=3.0, threshold=0.2: (
        (1 - p) ** (gamma_low if p < threshold else gamma_high)
    )
)
dual_focal = true_class(
    lambda p, every, gamma=5.0: (1 - p + max([q for q in every if q < p], default=0.0)) ** gamma
)


def label_smoothing(
    logits: Rows, targets: Rows, *, epsilon: float = 0.05, spread: str = "all"
) -> list[float]:
    k = len(logits[0])
    smooth = []
    for t in targets:
        if spread == "all":
            smooth.append([(1 - epsilon) * v + epsilon / k for v in t])
        else:
            smooth.append([(1 - epsilon) * v + epsilon * (1 - v) / (k - 1) for v in t])
    return cross_entropy(logits, smooth)


def brier(logits: Rows, targets: Rows) -> list[float]:
    return [
        math.fsum((a - b) ** 2 for a, b in zip(softmax(z), t, strict=True))
        for z, t in zip(logits, targets, strict=True)
    ]


def squared_error(
    logits: Rows, targets: Rows, *, on: str = "probabilities", scale: float = 1, target: float = 1
) -> list[float]:
    k = len(logits[0])
    if on == "probabilities":
        return [v / k for v in brier(logits, targets)]
    return [
        math.fsum(
            scale * tk * (zk - target) ** 2 + (1 - tk) * zk**2 for zk, tk in zip(z, t, strict=True)
        )
        / k
        for z, t in zip(logits, targets, strict=True)
    ]


def logit_norm(logits: Rows, _targets: Rows, *, p: float = 1.0) -> list[float]:
    if p == math.inf:
        return [max(abs(v) for v in z) for z in logits]
    return [math.fsum(abs(v) ** p for v in z) ** (1 / p) for z in logits]


def entropy(z: Sequence[float]) -> float:
    return -math.fsum(
        p * log_p for p, log_p in zip(softmax(z), log_softmax(z), strict=True) if p > 0
    )


def negative_entropy(logits: Rows, _targets: Rows) -> list[float]:
    return [-entropy(z) for z in logits]


def margin_smoothing(logits: Rows, _targets: Rows, *, margin: float = 10.0) -> list[float]:
    return [math.fsum(max(0.0, max(z) - v - margin) for v in z) / len(z) for z in logits]


def adafocal(logits: Rows, targets: Rows, *, gamma: Sequence[float]) -> list[float]:
    values = []
    for z, t, g in zip(logits, targets, gamma, strict=True):
        loss = focal([z], [t], gamma=g) if g >= 0 else inverse_focal([z], [t], gamma=-g)
        values += loss
    return values


def bsce_gra(logits: Rows, targets: Rows, *, gamma: float = 2, norm: float = 2) -> list[float]:
    values = []
    for z, t in zip(logits, targets, strict=True):
        gaps = [abs(a - b) for a, b in zip(softmax(z), t, strict=True)]
        far = max(gaps) if norm == math.inf else math.fsum(g**norm for g in gaps) ** (1 / norm)
        values.append(far**gamma * cross_entropy([z], [t])[0])
    return values


def acls(
    logits: Rows,
    _targets: Rows,
    *,
    margin: float = 10,
    top_weight: float = 1,
    other_weight: float = 0.1,
) -> list[float]:
    values = []
    for z in logits:
        t = list(z).index(max(z))
        others = [max(0.0, z[t] - v - margin) ** 2 for k, v in enumerate(z) if k != t]
        mean = math.fsum(others) / len(others)
        values.append(top_weight * max(0.0, z[t] - margin) ** 2 + other_weight * mean)
    return values


def top(logits: Rows, targets: Rows) -> tuple[list[float], list[float]]:
    """Confidence and correctness."""
    c, a = [], []
    for z, t in zip(logits, targets, strict=True):
        k = list(z).index(max(z))
        c.append(softmax(z)[k])
        a.append(t[k])
    return c, a


def mmce(logits: Rows, targets: Rows, *, width: float = 0.4, root: bool = True) -> float:
    c, a = top(logits, targets)
    n = len(c)
    total = math.fsum(
        (a[i] - c[i]) * (a[j] - c[j]) * math.exp(-abs(c[i] - c[j]) / width) / n**2
        for i in range(n)
        for j in range(n)
    )
    return math.sqrt(max(total, 0)) if root else total


def esd(logits: Rows, targets: Rows) -> float:
    c, a = top(logits, targets)
    n = len(c)
    if n < 3:
        return 0.0
    terms = []
    for i in range(n):
        g = [(a[j] - c[j]) * (c[j] <= c[i]) for j in range(n) if j != i]
        mean = math.fsum(g) / (n - 1)
        variance = math.fsum((v - mean) ** 2 for v in g) / (n - 2)
        terms.append(mean**2 - variance / (n - 1))
    return math.fsum(terms) / n


def mmce_weighted(logits: Rows, targets: Rows, *, width: float = 0.4, root: bool = True) -> float:
    """The three sums of the paper: wrong pairs, right pairs, mixed pairs."""
    c, a = top(logits, targets)
    n, m = len(c), math.fsum(a)
    total = 0.0
    for i in range(n):
        for j in range(n):
            k = math.exp(-abs(c[i] - c[j]) / width)
            if m < n:
                total += (1 - a[i]) * (1 - a[j]) * c[i] * c[j] * k / (n - m) ** 2
            if m > 0:
                total += a[i] * a[j] * (1 - c[i]) * (1 - c[j]) * k / m**2
            if 0 < m < n:
                total -= 2 * a[i] * (1 - a[j]) * (1 - c[i]) * c[j] * k / ((n - m) * m)
    return math.sqrt(max(total, 0)) if root else total


def ratio(au: float, ic: float, ac: float, iu: float) -> float:
    return math.log(1 + (au + ic) / (ac + iu + 1e-10))


def avuc(logits: Rows, targets: Rows, *, threshold: float, stop_gradient: bool = False) -> float:
    del stop_gradient  # which changes no value
    c, a = top(logits, targets)
    au = ic = ac = iu = 0.0
    for z, ci, ai in zip(logits, c, a, strict=True):
        h = entropy(z)
        if h >= threshold:
            au += ai * ci * math.tanh(h)
            iu += (1 - ai) * (1 - ci) * math.tanh(h)
        else:
            ac += ai * ci * (1 - math.tanh(h))
            ic += (1 - ai) * (1 - ci) * (1 - math.tanh(h))
    return ratio(au, ic, ac, iu)


def soft_avuc(
    logits: Rows, targets: Rows, *, kappa: float = 0.5, temperature: float = 1.0
) -> float:
    _, a = top(logits, targets)
    au = ic = ac = iu = 0.0
    for z, ai in zip(logits, a, strict=True):
        h = entropy(z)
        s = h / math.log(len(z))
        x = math.log(s * (1 - kappa) / ((1 - s) * kappa)) / temperature
        t = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
        au += ai * t * math.tanh(h)
        iu += (1 - ai) * t * math.tanh(h)
        ac += ai * (1 - t) * (1 - math.tanh(h))
        ic += (1 - ai) * (1 - t) * (1 - math.tanh(h))
    return ratio(au, ic, ac, iu)


def soft_binned_ece(
    logits: Rows,
    targets: Rows,
    *,
    bins: int = 15,
    temperature: float = 0.01,
    norm: float = 2,
    form: str = "bin",
) -> float:
    c, a = top(logits, targets)
    n = len(c)
    u = [softmax([-((ci - (j + 0.5) / bins) ** 2) / temperature for j in range(bins)]) for ci in c]
    total = 0.0
    for j in range(bins):
        size = math.fsum(row[j] for row in u)
        if size == 0:
            continue
        accuracy = math.fsum(row[j] * ai for row, ai in zip(u, a, strict=True)) / size
        confidence = math.fsum(row[j] * ci for row, ci in zip(u, c, strict=True)) / size
        if form == "bin":
            total += size / n * abs(accuracy - confidence) ** norm
        else:
            total += math.fsum(
                row[j] * abs(accuracy - ci) ** norm / n for row, ci in zip(u, c, strict=True)
            )
    return total ** (1 / norm)


def dca(logits: Rows, targets: Rows) -> float:
    c, a = top(logits, targets)
    return abs(math.fsum(a) - math.fsum(c)) / len(c)


def mdca(logits: Rows, targets: Rows) -> float:
    n, k = len(logits), len(logits[0])
    p = [softmax(z) for z in logits]
    return (
        math.fsum(
            abs(math.fsum(row[j] for row in p) / n - math.fsum(t[j] for t in targets) / n)
            for j in range(k)
        )
        / k
    )


def correctness_ranking(logits: Rows, targets: Rows, *, correctness: Sequence[float]) -> float:
    c, _ = top(logits, targets)
    n, total = len(c), 0.0
    for i in range(n):
        j = (i + 1) % n
        margin = abs(correctness[i] - correctness[j])
        sign = (correctness[i] > correctness[j]) - (correctness[i] < correctness[j])
        total += max(0.0, -sign * (c[i] - c[j]) + margin) / n
    return total
