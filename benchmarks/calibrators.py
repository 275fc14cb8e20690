"""Calibrators: speed as ratios in one run, and quality on real logits; rewrites CALIBRATORS.md.

Quality: each set of real logits (``CALIBRANT_SHARED``, not part of the project) is cut in half;
every method is fitted on the first half and judged on the second.
"""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from calibrant import Predictions, metrics
from calibrant.calibrators import (
    CALIBRATORS,
    HistogramBinning,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    automatic,
)
from run import best, machine, table

N, K = 50_000, 1_000
PAGE = Path(__file__).with_name("CALIBRATORS.md")
SHARED = Path(os.environ.get("CALIBRANT_SHARED", Path(__file__).parents[2] / "shared"))


# --- speed ------------------------------------------------------------------------------------


def draw(num_samples: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    z = rng.standard_normal((num_samples, num_classes), dtype=np.float32) * 3
    noise = rng.gumbel(size=z.shape).astype(np.float32)
    return z, (z * 0.5 + noise).argmax(axis=1)


def temperature_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    from netcal.scaling import TemperatureScaling as Netcal
    from probmetrics.calibrators import get_calibrator

    t, out = torch.from_numpy(z), torch.empty(z.shape)
    probs = torch.softmax(t, 1).numpy()
    ours = best({
        "floor": lambda: torch.log_softmax(t, 1, out=out),
        "ours": lambda: TemperatureScaling().fit(Predictions(logits=z, labels=labels)),
    }, rounds=5)  # fmt: skip
    exact = probs.astype(np.float64)  # netcal's temperature does not move in float32
    theirs = best({
        "ours": lambda: TemperatureScaling().fit(Predictions(probs=probs, labels=labels)),
        "probmetrics": lambda: get_calibrator("temp-scaling").fit(probs, labels),
        "netcal": lambda: Netcal().fit(exact, labels),
    }, rounds=2)  # fmt: skip
    return [
        ("temperature by NLL", f"{ours['ours'] / ours['floor']:.1f} × floor", "≤ 12 (aim 8)"),
        ("… against probmetrics (given probabilities)",
         f"{ours['ours'] / theirs['probmetrics']:.3f} × its time", "≤ 0.1"),
        ("… against netcal (given float64 probabilities; in float32 it stays at 1)",
         f"{ours['ours'] / theirs['netcal']:.3f} × its time", "≤ 0.1"),
        ("… when we too are given probabilities",
         f"{theirs['ours'] / theirs['probmetrics']:.3f}, {theirs['ours'] / theirs['netcal']:.3f}",
         ""),
    ]  # fmt: skip


def grid_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    small = Predictions(logits=z[:10_000, :100], labels=labels[:10_000] % 100)
    # The bound that narrows the search is weakest where errors of both signs remain.
    mixed = Predictions(logits=small.logits * np.where(np.arange(10_000) % 2, 0.2, 3)[:, None],
                        labels=draw(10_000, 100)[1])  # fmt: skip
    large = Predictions(logits=z, labels=labels)
    times = best({
        "small": lambda: TemperatureScaling(objective="ece").fit(small),
        "mixed": lambda: TemperatureScaling(objective="ece").fit(mixed),
        "large": lambda: TemperatureScaling(objective="ece").fit(large),
        "soft": lambda: TemperatureScaling(objective="soft_ece").fit(small),
    }, rounds=2)  # fmt: skip
    return [
        ("1,000 temperatures by ECE, 10,000 × 100", f"{times['small']:.2f} s", "≤ 1.5 s"),
        ("… where over- and underconfidence mix", f"{times['mixed']:.2f} s", "≤ 1.5 s"),
        ("1,000 temperatures by ECE, 50,000 × 1,000", f"{times['large']:.2f} s", "≤ 25 s"),
        ("temperature by soft ECE, 10,000 × 100", f"{times['soft']:.2f} s", ""),
    ]


def vector_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    from probmetrics.calibrators import get_calibrator

    probs = torch.softmax(torch.from_numpy(z), 1).numpy()
    p = Predictions(logits=z, labels=labels)
    times = best({
        "svs": lambda: StructuredVectorScaling(strength=1.0).fit(p),
        "svs cv": lambda: StructuredVectorScaling().fit(p),
        "vector": lambda: VectorScaling().fit(p),
        "probmetrics": lambda: get_calibrator("svs").fit(probs, labels),
    }, rounds=2)  # fmt: skip
    rows = [
        (f"{what}, against probmetrics svs", f"{times[key] / times['probmetrics']:.3f} × its time",
         "≤ 0.2")
        for key, what in (("svs", "structured vector scaling, same penalty"),
                          ("svs cv", "structured vector scaling, penalty chosen"),
                          ("vector", "vector scaling, penalty chosen"))
    ]  # fmt: skip
    for name, c in (("temperature", TemperatureScaling()), ("vector", VectorScaling()),
                    ("structured vector", StructuredVectorScaling())):  # fmt: skip
        tracemalloc.start()
        c.fit(p)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        share = f"{100 * peak / z.nbytes:.0f} % of the input"
        rows.append((f"peak extra memory, {name}", share, "a chunk, not N × K"))
    return rows


# --- quality ----------------------------------------------------------------------------------


def sets() -> dict[str, Predictions]:
    found = {}
    for path in sorted((SHARED / "data" / "logits").glob("*.npz")):
        with np.load(path) as data:
            kinds = [kind for kind in ("logits", "probs") if kind in data.files]
            if kinds and not path.stem.endswith("_val"):
                scores = {kinds[0]: data[kinds[0]].astype(np.float32)}
                found[path.stem] = Predictions(**scores, labels=data["labels"].astype(int))
    return found


Judged = Callable[[Predictions, Predictions], Predictions]


def ours() -> dict[str, Judged]:
    makers: dict[str, Judged] = {"none": lambda _, test: test}
    for name, kind in CALIBRATORS.items():
        makers[name] = lambda fit, test, kind=kind: kind().fit(fit).transform(test)
    makers["temperature by ECE"] = lambda fit, test: (
        TemperatureScaling(objective="ece").fit(fit).transform(test))  # fmt: skip
    makers["temperature by soft ECE"] = lambda fit, test: (
        TemperatureScaling(objective="soft_ece").fit(fit).transform(test))  # fmt: skip
    makers["histogram of classes"] = lambda fit, test: (
        HistogramBinning(target="class", binning="mass").fit(fit).transform(test))  # fmt: skip
    makers["auto"] = lambda fit, test: automatic(fit).calibrator.transform(test)
    return makers


def peers() -> dict[str, Judged]:
    """Peer methods, named after ours. All are given probabilities, as they ask."""
    from netcal.binning import HistogramBinning as NetcalBinning
    from netcal.scaling import TemperatureScaling as NetcalTemperature
    from probmetrics import calibrators as pm

    def wrapped(make: Callable[[], object], method: str = "predict_proba") -> Judged:
        def run(fit: Predictions, test: Predictions) -> Predictions:
            fitted = make()
            fitted.fit(fit.probs.astype(np.float32), fit.labels)
            probs = np.asarray(getattr(fitted, method)(test.probs.astype(np.float32)), float)
            probs = np.clip(probs, 0, 1)
            return Predictions(probs=probs / probs.sum(1, keepdims=True), labels=test.labels)

        return run

    def one_against_rest(make: Callable[[], object]) -> Judged:
        """Peers for two classes: one for each class, made to sum to 1, as they are used."""

        def run(fit: Predictions, test: Predictions) -> Predictions:
            columns = []
            for k in range(fit.num_classes):
                fitted = make()
                fitted.fit(pair(fit.probs[:, k]), (fit.labels == k).astype(int))
                columns.append(np.asarray(fitted.predict_proba(pair(test.probs[:, k])))[:, 1])
            probs = np.clip(np.nan_to_num(np.stack(columns, 1)), 1e-12, 1)
            return Predictions(probs=probs / probs.sum(1, keepdims=True), labels=test.labels)

        return run

    def pair(p: np.ndarray) -> np.ndarray:
        return np.stack([1 - p, p], 1)

    return {
        "temperature (probmetrics)": wrapped(lambda: pm.get_calibrator("temp-scaling")),
        "temperature (netcal)": wrapped(NetcalTemperature, "transform"),
        "ensemble_temperature (probmetrics)": wrapped(pm.ETSCalibrator),
        "vector (probmetrics)": wrapped(pm.VectorScalingCalibrator),
        "matrix (probmetrics)": wrapped(pm.MatrixScalingCalibrator),
        "structured_vector (probmetrics)": wrapped(lambda: pm.get_calibrator("svs")),
        "structured_matrix (probmetrics)": wrapped(lambda: pm.get_calibrator("sms")),
        "platt (scikit-learn)": one_against_rest(lambda: pm.get_calibrator("platt")),
        "isotonic (scikit-learn)": wrapped(lambda: pm.get_calibrator("isotonic")),
        "histogram of classes (netcal)": wrapped(lambda: NetcalBinning(15), "transform"),
        "spline (probmetrics)": one_against_rest(pm.CDFSplineCalibrator),
    }


def judge(p: Predictions) -> dict[str, float]:
    return {
        "NLL": metrics.nll(p),
        "ECE": metrics.ece(p),
        "debiased ECE": metrics.debiased_ece(p),
        "Brier": metrics.brier(p),
        "accuracy": metrics.accuracy(p),
    }


def quality(save: Callable[[str], None]) -> None:
    """Judge every method on every set, saving the tables after each method."""
    data = sets()
    if not data:
        print("The real logits are absent (CALIBRANT_SHARED), so nothing is judged.")
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    seconds: dict[str, float] = {}
    for method, run in (ours() | peers()).items():
        start = time.perf_counter()
        for key, p in data.items():
            half = p.num_samples // 2
            fit, test = p.take(np.arange(half)), p.take(np.arange(half, p.num_samples))
            try:
                found = judge(run(fit, test))
            except Exception as error:  # a peer that raises is a result
                print(method, key, type(error).__name__, str(error)[:80])
                found = dict.fromkeys(("NLL", "ECE", "debiased ECE", "Brier", "accuracy"), np.nan)
            results.setdefault(method, {})[key] = found
        seconds[method] = (time.perf_counter() - start) / len(data)
        print(method, f"{seconds[method]:.1f} s a set", flush=True)
        save(f"{len(data)} sets.\n\n{means(results, seconds)}\n\n{against_peers(results)}")


def means(results: dict, seconds: dict[str, float]) -> str:
    lines = ["| method | NLL | ECE % | debiased ECE % | Brier | accuracy % | failed | s a set |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for method, by_set in results.items():
        columns = {name: np.array([found[name] for found in by_set.values()])
                   for name in next(iter(by_set.values()))}  # fmt: skip
        failed = int(np.isnan(columns["NLL"]).sum())
        mean = {name: float(np.nanmean(column)) for name, column in columns.items()}
        lines.append(
            f"| {method} | {mean['NLL']:.5f} | {100 * mean['ECE']:.2f} | "
            f"{100 * mean['debiased ECE']:.2f} | {mean['Brier']:.4f} | "
            f"{100 * mean['accuracy']:.2f} | {failed or ''} | {seconds[method]:.1f} |"
        )
    return "\n".join(lines)


def against_peers(results: dict) -> str:
    """How far a peer's method of the same name is ahead in NLL, on average and at most."""
    lines = ["| peer | its mean NLL − ours | sets where it is ahead by > 1e-4 | most |",
             "|---|---|---|---|"]  # fmt: skip
    for method, by_set in results.items():
        name, _, peer = method.partition(" (")
        if not peer or name not in results:
            continue
        gap = np.array([found["NLL"] - results[name][key]["NLL"] for key, found in by_set.items()])
        gap = gap[~np.isnan(gap)]
        if not len(gap):
            lines.append(f"| {method} | raises on all | | |")
            continue
        lines.append(f"| {method} | {gap.mean():+.5f} | {int((gap < -1e-4).sum())} of {len(gap)} | "
                     f"{max(-gap.min(), 0):.5f} |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    warnings.filterwarnings("ignore")  # the peers'
    parts = sys.argv[1:] or ["speed", "quality"]

    def save(part: str, new: str) -> None:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), part, new), encoding="utf-8")

    if "speed" in parts:
        z, labels = draw(N, K)
        rows = temperature_speed(z, labels) + grid_speed(z, labels) + vector_speed(z, labels)
        for row in rows:
            print(" | ".join(row))
        save("speed", f"{machine()}\n\n{table(rows)}")
    if "quality" in parts:
        quality(lambda new: save("quality", new))


def replaced(text: str, name: str, new: str) -> str:
    before, rest = text.split(f"<!-- {name} -->")
    after = rest.split(f"<!-- end of {name} -->")[1]
    return f"{before}<!-- {name} -->\n{new}\n<!-- end of {name} -->{after}"


if __name__ == "__main__":
    main()
