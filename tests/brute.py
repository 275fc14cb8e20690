"""The formulas once more, by brute force, in float64: loops where the package has none."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln


class Brute:
    """Everything from logits, sample by sample."""

    def __init__(self, z: np.ndarray, labels: np.ndarray) -> None:
        z = z.astype(np.float64)
        n, k = z.shape
        self.labels, self.n, self.k = labels, n, k
        self.top = z.argmax(axis=1)
        shifted = z - z[np.arange(n), self.top][:, None]
        terms = np.exp(shifted)
        terms[np.arange(n), self.top] = 0
        self.s = terms.sum(axis=1)
        self.conf = 1 / (1 + self.s)
        self.hit = (self.top == labels).astype(float)
        self.logp = shifted - np.log1p(self.s)[:, None]
        self.p = np.exp(self.logp)

    # --- bins ---------------------------------------------------------------------------------

    def width_bins(self, values: np.ndarray, bins: int) -> list[np.ndarray]:
        out = []
        for b in range(bins):
            low, high = b / bins, (b + 1) / bins
            inside = (values > low) & (values <= high)
            if b == 0:
                inside |= values == 0
            out.append(np.flatnonzero(inside))
        return out

    def mass_bins(self, bins: int) -> list[np.ndarray]:
        """array_split of the sorted samples, each group of equal s moved to its middle's bin."""
        order = np.argsort(-self.s, kind="stable")
        bin_of_rank = np.concatenate(
            [np.full(len(part), b) for b, part in enumerate(np.array_split(order, bins))]
        )
        out: list[list[int]] = [[] for _ in range(bins)]
        rank = 0
        for _, group in itertools.groupby(order, key=lambda i: self.s[i]):
            members = list(group)
            middle = rank + (len(members) - 1) / 2
            out[int(bin_of_rank[math.floor(middle)])].extend(members)
            rank += len(members)
        return [np.array(part, dtype=int) for part in out]

    def bins(self, bins: int, binning: str) -> list[np.ndarray]:
        parts = self.width_bins(self.conf, bins) if binning == "width" else self.mass_bins(bins)
        return [part for part in parts if len(part)]

    # --- metrics ------------------------------------------------------------------------------

    def accuracy(self) -> float:
        return self.hit.mean()

    def nll(self) -> float:
        return -np.mean([self.logp[i, self.labels[i]] for i in range(self.n)])

    def brier(self) -> float:
        return np.mean(
            [((self.p[i] - np.eye(self.k)[self.labels[i]]) ** 2).sum() for i in range(self.n)]
        )

    def mean_confidence(self) -> float:
        return self.conf.mean()

    def mean_entropy(self) -> float:
        return np.mean([-sum(q * math.log(q) for q in row if q > 0) for row in self.p])

    def ece(self, bins: int = 15, norm: float = 1, binning: str = "width") -> float:
        gaps = [
            (len(b) / self.n, abs(self.hit[b].mean() - self.conf[b].mean()))
            for b in self.bins(bins, binning)
        ]
        if norm == math.inf:
            return max(gap for _, gap in gaps)
        return sum(w * gap**norm for w, gap in gaps) ** (1 / norm)

    def mce(self) -> float:
        return self.ece(norm=math.inf)

    def adaptive_ece(self) -> float:
        return self.ece(binning="mass")

    def label_binned_ece(self, bins: int = 15, norm: float = 1, binning: str = "width") -> float:
        total = 0.0
        for b in self.bins(bins, binning):
            total += sum(abs(self.hit[b].mean() - self.conf[i]) ** norm for i in b)
        return (total / self.n) ** (1 / norm)

    def overconfidence_error(self) -> float:
        return sum(
            len(b) / self.n * self.conf[b].mean() * max(self.conf[b].mean() - self.hit[b].mean(), 0)
            for b in self.bins(15, "width")
        )

    def underconfidence_error(self) -> float:
        return sum(
            len(b)
            / self.n
            * (1 - self.conf[b].mean())
            * max(self.hit[b].mean() - self.conf[b].mean(), 0)
            for b in self.bins(15, "width")
        )

    def debiased_ece(self, bins: int = 15) -> float:
        total, kept = 0.0, 0
        for b in self.bins(bins, "mass"):
            if len(b) >= 2:
                a = self.hit[b].mean()
                gap = a - self.conf[b].mean()
                total += len(b) * (gap**2 - a * (1 - a) / (len(b) - 1))
                kept += len(b)
        return math.sqrt(max(total / kept, 0)) if kept > self.n / 2 else math.nan

    def sweep_ece(self, norm: float = 1) -> float:
        best = 1
        for bins in range(2, self.n + 1):
            means = [self.hit[b].mean() for b in self.bins(bins, "mass")]
            if any(after < before for before, after in itertools.pairwise(means)):
                break
            best = bins
        return self.ece(bins=best, norm=norm, binning="mass")

    def classwise_ece(self, bins: int = 15, norm: float = 1) -> float:
        total = 0.0
        for k in range(self.k):
            inside = 0.0
            for b in self.width_bins(self.p[:, k], bins):
                if len(b):
                    gap = abs((self.labels[b] == k).mean() - self.p[b, k].mean())
                    inside += len(b) / self.n * gap**norm
            total += inside ** (1 / norm)
        return total / self.k

    def _smoothed(self, sigma: float) -> float:
        """Integral of the smoothed residual: images of each sample at -c, c, 2 - c and beyond."""
        t = (np.arange(20_000) + 0.5) / 20_000
        density = np.zeros_like(t)
        for c, a in zip(self.conf, self.hit, strict=True):
            for image in (sign * c + 2 * m for m in range(-2, 3) for sign in (1, -1)):
                # Beyond 39 sigma the normal density is 0 in float64.
                near = slice(*np.searchsorted(t, (image - 39 * sigma, image + 39 * sigma)))
                density[near] += (a - c) * np.exp(-0.5 * ((t[near] - image) / sigma) ** 2)
        return np.abs(density / (self.n * sigma * math.sqrt(2 * math.pi))).mean()

    def smooth_ece(self) -> float:
        lowest = 1e-3
        if self._smoothed(lowest) <= lowest:
            return self._smoothed(lowest)
        return brentq(lambda sigma: self._smoothed(sigma) - sigma, lowest, 1.2, xtol=1e-7)

    def _kernel_sum(self, width: float, diagonal: bool) -> float:
        r = self.hit - self.conf
        return sum(
            r[i] * r[j] * math.exp(-abs(self.conf[i] - self.conf[j]) / width)
            for i in range(self.n)
            for j in range(self.n)
            if diagonal or i != j
        )

    def mmce(self) -> float:
        return math.sqrt(self._kernel_sum(0.4, True) / self.n**2)

    def skce(self) -> float:
        if self.n < 2:
            return math.nan
        gaps = [abs(a - b) for a, b in itertools.combinations(self.conf, 2)]
        width = float(np.median(gaps)) or float(np.mean(gaps)) or 1.0
        return self._kernel_sum(width, False) / (self.n * (self.n - 1))

    def kde_ece(self, bandwidth: float, norm: float = 1) -> float:
        if self.n < 2:
            return math.nan
        gaps = []
        for i in range(self.n):
            a, b = self.conf / bandwidth, self.s * self.conf / bandwidth
            doubt = math.log(self.s[i]) - math.log1p(self.s[i])
            kernel = np.exp(a * math.log(self.conf[i]) + b * doubt - betaln(a + 1, b + 1))
            kernel[i] = 0
            gaps.append(abs(kernel @ self.hit / kernel.sum() - self.conf[i]))
        if norm == math.inf:
            return max(gaps)
        return np.mean([gap**norm for gap in gaps]) ** (1 / norm)

    # --- ranking: smaller s is more confident -------------------------------------------------

    def auroc(self) -> float:
        right, wrong = self.s[self.hit == 1], self.s[self.hit == 0]
        if not len(right) or not len(wrong):
            return math.nan
        wins = sum((a < b) + 0.5 * (a == b) for a in right for b in wrong)
        return wins / (len(right) * len(wrong))

    def _average_precision(self, positive: np.ndarray, score: np.ndarray) -> float:
        if not positive.any() or positive.all():
            return math.nan
        total, before = 0.0, 0.0
        for threshold in np.unique(score)[::-1]:
            flagged = score >= threshold
            recall = positive[flagged].sum() / positive.sum()
            total += (recall - before) * positive[flagged].mean()
            before = recall
        return total

    def aupr_success(self) -> float:
        return self._average_precision(self.hit == 1, -self.s)

    def aupr_error(self) -> float:
        return self._average_precision(self.hit == 0, self.s)

    def fpr95(self) -> float:
        right, wrong = self.s[self.hit == 1], self.s[self.hit == 0]
        if not len(right) or not len(wrong):
            return math.nan
        for threshold in np.unique(self.s):
            if (right <= threshold).mean() >= 0.95 - 1e-12:
                return (wrong <= threshold).mean()
        raise AssertionError

    def aurc(self) -> float:
        """Mean over coverages; within ties, errors are spread evenly."""
        order = np.argsort(self.s, kind="stable")
        error = 1 - self.hit[order]
        for value in np.unique(self.s):
            tied = self.s[order] == value
            error[tied] = error[tied].mean()
        risks = np.cumsum(error) / np.arange(1, self.n + 1)
        return risks.mean()

    def eaurc(self) -> float:
        r = 1 - self.hit.mean()
        return self.aurc() - (r + (1 - r) * math.log(1 - r) if r < 1 else 1)
