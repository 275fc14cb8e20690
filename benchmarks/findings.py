"""The sentences of docs/which.md that state a result, made from the numbers in evidence/.

A difference is within seeds (or within networks), like for like, with its 95 % interval; "lower"
and "higher" are said only where the interval excludes 0.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

import learning_tables
import verdicts
from calibrant.data import CORRUPTIONS
from calibrant.papers import CLAIMS
from calibrant.results import compare_runs
from common import markdown
from evidence import (
    FOLDER,
    KINDS,
    LOSSES,
    NAMES,
    NATURAL,
    Values,
    judged_networks,
    spread,
    values_of,
)

CORRUPTED = [f"generated/{kind}/{level}" for kind in KINDS for level in range(1, 6)]
CE = "cross_entropy"
MARKS = {"lower": " ▼", "higher": " ▲"}
IMAGES = ("features-cifar10", "features-cifar100", "cifar10-speednet", "cifar100", "cifar10")
SHOWN = (*IMAGES, "features-news20", "features-sst2")
HEADS_CORRUPTED = ("gaussian_noise-3", "contrast-3", "motion_blur-3", "gaussian_noise-5")
ALL_CORRUPTIONS = [f"{kind}-{level}" for kind in CORRUPTIONS for level in range(1, 6)]
HEADS_C = "features-cifar10-c"
SHIFTED = {
    "corrupted": {
        HEADS_C: [f"features/cifar10-c/generated-{kind}.npz" for kind in ALL_CORRUPTIONS],
        "features-cifar100": [
            f"features/cifar100/generated-{kind}.npz" for kind in HEADS_CORRUPTED
        ],
        "cifar10-speednet": [f"generated/{kind}/{level}" for kind in KINDS for level in (3, 5)],
        "cifar100": [f"generated/{kind}/3" for kind in KINDS],
        "cifar10": CORRUPTED,
    },
    "natural": {
        "features-cifar10": [f"features/cifar10/{NATURAL}"],
        "cifar10-speednet": [NATURAL],
        "cifar10": [NATURAL],
    },
}


SETTINGS = {**NAMES, HEADS_C: "CIFAR-10, head on features, 16 corruptions at five levels"}


class Difference(NamedTuple):
    """A mean difference with its interval, in the units shown."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def word(self) -> str:
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "no significant difference"

    def shown(self, digits: int) -> str:
        ends = f"{self.low:+.{digits}f} to {self.high:+.{digits}f}"
        return f"{self.mean:+.{digits}f} ({ends})"


def differ(a: dict[object, float], b: dict[object, float], scale: float = 1.0) -> Difference:
    """Paired difference over the keys of both."""
    keys = sorted(a.keys() & b.keys(), key=str)
    found = compare_runs([scale * a[k] for k in keys], [scale * b[k] for k in keys], paired=True)
    return Difference(found.difference, found.low, found.high, len(keys))


def of_seeds(
    v: Values, loss: str, method: str, metric: str, parts: Sequence[str]
) -> dict[object, float]:
    columns = [v.by_seed.get((loss, method, part, metric), {}) for part in parts]
    seeds = set.intersection(*map(set, columns))
    return {seed: sum(column[seed] for column in columns) / len(columns) for seed in seeds}


def against(
    data: str,
    metric: str,
    a: tuple[str, str],
    b: tuple[str, str],
    parts: Sequence[str] = ("test",),
    scale: float = 1.0,
) -> Difference:
    """One pair of loss and calibrator minus another on a data set."""
    v = values_of(data)
    return differ(of_seeds(v, *a, metric, parts), of_seeds(v, *b, metric, parts), scale)


def networks(
    metric: str, a: str, b: str, *, part: str = "test", top_only: bool = False, scale: float = 1.0
) -> Difference:
    """One calibrator minus another over pretrained networks."""
    found = judged_networks(part, top_only=top_only)
    one, two = (dict(found[name, "calibrant"][metric]) for name in (a, b))
    return differ(one, two, scale)


def fitted_to(a: str, b: str, size: int) -> Difference:
    """NLL of one calibrator minus another, fitted to few samples of networks not used to design it.

    A network counts once: the mean over the draws of samples that both were fitted to.
    """
    gaps = learning_tables.gaps_by_network(size, a, b, data="")[False]
    means: dict[object, float] = {name: learning_tables.mean(x) for name, x in gaps.items()}
    return differ(means, dict.fromkeys(means, 0.0))


def on_a_tail(a: str, b: str) -> Difference:
    """NLL of one method minus another over networks whose class frequencies changed."""
    with (FOLDER / "label_shift_networks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    one, two = ({row["network"]: float(row[name]) for row in rows} for name in (a, b))
    return differ(one, two)


def minus_cross_entropy(metric: str, method: str, digits: int, scale: float = 1.0) -> str:
    """Each loss minus cross-entropy after the same calibrator, by set of runs."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for data, name in NAMES.items():
        for loss in values_of(data).losses:
            d = against(data, metric, (loss, method), (CE, method), scale=scale)
            if loss != CE and d.count > 1:
                found[loss][name] = f"{d.shown(digits)}{MARKS.get(d.word, '')}"
    rows = [
        [f"`{loss}`", *(found[loss].get(name, "") for name in NAMES.values())]
        for loss in LOSSES
        if loss in found
    ]
    return markdown(["loss", *NAMES.values()], rows)


def most_wins() -> int:
    """On how many data sets at most a loss has a lower NLL than cross-entropy, both scaled."""
    wins: dict[str, int] = defaultdict(int)
    for data in NAMES:
        for x in values_of(data).losses:
            if x != CE:
                wins[x] += against(data, "nll", (x, "TS"), (CE, "TS")).word == "lower"
    return max(wins.values())


def in_lines(*texts: str) -> str:
    return "<br>".join(texts)  # within a cell of a table


def on(
    datas: Sequence[str],
    metric: str,
    a: tuple[str, str],
    b: tuple[str, str],
    digits: int,
    scale: float = 1.0,
) -> str:
    """One pair minus another on several data sets, each with its interval."""
    found = {data: against(data, metric, a, b, scale=scale) for data in datas}
    return in_lines(*(f"{NAMES[data]} {d.shown(digits)}" for data, d in found.items()))


def under_shift(metric: str, a: tuple[str, str], b: tuple[str, str], kind: str) -> str:
    """The same on shifted samples, where we have them: in points."""
    found = {data: against(data, metric, a, b, p, 100) for data, p in SHIFTED[kind].items()}
    return in_lines(*(f"{SETTINGS[data]} {d.shown(1)}" for data, d in found.items()))


def least_error(kind: str) -> str:
    """The lowest mean ECE on shifted samples of any loss and calibrator, by data set."""
    texts = []
    for data, parts in SHIFTED[kind].items():
        v = values_of(data)
        methods = {calibrator for _, calibrator, part, _ in v.by_seed if part in parts}
        found = {
            (loss, method): v.over(loss, method, parts, "ece")
            for loss in v.losses
            for method in sorted(methods)
            if (loss, method, parts[0], "ece") in v.by_seed and learned(v, loss)
        }
        best = min(found, key=lambda pair: sum(found[pair]) / len(found[pair]))
        shown = spread(found[best], percent=True)
        texts.append(f"{SETTINGS[data]} {shown} % (`{best[0]}`, {best[1]})")
    return in_lines(*texts)


def learned(v: Values, loss: str) -> bool:
    """Whether a loss reaches half the accuracy of cross-entropy; guessing is easily calibrated."""
    one, two = (v.over(x, "none", ["test"], "accuracy") for x in (loss, CE))
    return 2 * sum(one) / len(one) > sum(two) / len(two)


def advice() -> str:
    """What to use, and what we saw, at which strength."""
    ece = networks("ece", "temperature", "none", scale=100)
    matrix = networks("nll", "structured_matrix", "temperature")
    accuracy = networks("accuracy", "structured_matrix", "temperature", scale=100)
    binary = networks("ece", "structured_vector", "temperature", top_only=True, scale=100)
    levels = networks("auroc", "histogram", "none", scale=100)
    scaled = networks("auroc", "scaling_binning", "none", scale=100)
    few, many = (fitted_to("auto", "temperature", size) for size in (200, 5000))
    single = fitted_to("auto", "structured_matrix", 5000)
    tail, refit = on_a_tail("em", "validation"), on_a_tail("em", "refit")
    plain, ts = (CE, "none"), (CE, "TS")
    rows = [
        [
            "a trained network, a few hundred labelled samples",
            "–",
            "`temperature`, which changes no predicted class; `auto` for the lowest NLL",
            in_lines(
                f"ECE in points, `temperature` minus none: {ece.count} pretrained networks "
                f"{ece.shown(1)}",
                on(SHOWN, "ece", ts, plain, 1, 100),
                f"NLL of `auto` minus `temperature`, fitted to 200 samples: {few.shown(4)} on "
                f"{few.count} networks",
            ),
        ],
        [
            "a trained network, thousands of labelled samples",
            "–",
            "`auto`; of single methods `structured_matrix` up to about a hundred classes, "
            "otherwise `structured_vector`",
            in_lines(
                f"NLL of `auto` minus `temperature`, fitted to 5,000 samples: {many.shown(4)} on "
                f"{many.count} networks; minus `structured_matrix`: {single.shown(4)}",
                f"NLL of `structured_matrix` minus `temperature`: {matrix.shown(4)} on "
                f"{matrix.count} pretrained networks; accuracy {accuracy.shown(2)} points",
                "NLL of `structured_vector` minus `temperature` for cross-entropy:",
                on(SHOWN, "nll", (CE, "SVS"), ts, 3),
            ),
        ],
        [
            "you train, and can calibrate afterwards",
            "`cross_entropy`",
            "`structured_vector` or `temperature`",
            in_lines(
                f"after temperature scaling no loss has a lower NLL than cross-entropy on more "
                f"than {most_wins()} of our {len(NAMES)} sets of runs "
                f"([below](#compare-losses-after-calibration))",
                "Label smoothing minus cross-entropy, NLL after TS:",
                on(SHOWN, "nll", ("label_smoothing", "TS"), ts, 3),
            ),
        ],
        [
            "you train, and cannot calibrate afterwards",
            "`focal:gamma=3` or mixup; measure it",
            "none",
            in_lines(
                "ECE in points minus cross-entropy, focal loss:",
                on((*SHOWN, "sst2"), "ece", ("focal", "none"), plain, 1, 100),
                "mixup:",
                on(IMAGES, "ece", ("mixup", "none"), plain, 1, 100),
                "cross-entropy with `soft_binned_ece`:",
                on(IMAGES, "ece", (f"{CE} + soft_binned_ece", "none"), plain, 1, 100),
            ),
        ],
        [
            "class frequencies will change, samples of a class will not",
            "–",
            "`label_shift` on unlabelled scores ([how to](shift.md))",
            in_lines(
                f"NLL on a long tail of {tail.count} networks: `label_shift` minus calibration on "
                f"samples with the old frequencies {tail.shown(3)}",
                f"minus a fit to labels of the tail {refit.shown(3)}",
            ),
        ],
        [
            "samples will look different: corruption, another source",
            "`cross_entropy`",
            "`temperature`",
            in_lines(
                "ECE of cross-entropy in points, scaled minus as trained, corrupted:",
                under_shift("ece", ts, plain, "corrupted"),
                "photographs from another source:",
                under_shift("ece", ts, plain, "natural"),
                "Focal loss without calibration minus cross-entropy with it, corrupted:",
                under_shift("ece", ("focal", "none"), ts, "corrupted"),
                "Lowest ECE of the losses measured there (with half the accuracy of cross-entropy "
                "or more) and calibrators, chosen on the same samples:",
                least_error("corrupted"),
            ),
        ],
        [
            "you have two classes, or only confidences",
            "–",
            "`structured_vector`, `isotonic`, `beta` or `platt`",
            f"ECE of `structured_vector` minus `temperature`: {binary.shown(1)} points on "
            f"{binary.count} ImageNet networks, right or wrong: {binary.word}",
        ],
        [
            "a few levels of confidence are enough",
            "–",
            "`scaling_binning`",
            f"AUROC {scaled.shown(1)} points against no calibration; `histogram` "
            f"{levels.shown(1)}, and it may give the true class probability 0",
        ],
    ]
    return markdown(
        ["your situation", "loss", "calibrator", "what we saw, with 95 % intervals"], rows
    )


def losses_compared() -> str:
    return (
        "A loss minus cross-entropy, means within seeds with 95 % intervals: ▼ marks a lower "
        "value, ▲ a higher one, nothing where the interval contains 0. NLL after temperature "
        f"scaling of both:\n\n{minus_cross_entropy('nll', 'TS', 3)}\n\nECE in points, both "
        f"uncalibrated:\n\n{minus_cross_entropy('ece', 'none', 1, 100)}"
    )


def refinement() -> str:
    """What temperature scaling does to AUROC."""
    texts = []
    for data, name in NAMES.items():
        found = against(data, "auroc", (CE, "TS"), (CE, "none"), scale=100)
        texts.append(f"{name} {found.shown(2)}")
    return (
        "With more than two classes, a temperature can change the order of the samples by "
        "confidence, and with it the AUROC. Cross-entropy after temperature scaling minus before, "
        f"in points: {'; '.join(texts)}."
    )


def shifted() -> str:
    """What scaling removes under shift, and which losses are best before and after."""
    v = values_of("cifar10")
    clean = against("cifar10", "ece", (CE, "TS"), (CE, "none"), scale=100)
    moved = against("cifar10", "ece", (CE, "TS"), (CE, "none"), CORRUPTED, 100)
    before, after = (
        [
            x
            for x in v.losses
            if x != CE
            and against("cifar10", "ece", (x, method), (CE, method), CORRUPTED, 100).word == "lower"
        ]
        for method in ("none", "TS")
    )
    soft = sum(
        sum(of_seeds(v, x, "TS-SB-ECE", "ece_l2_mass", [part]).values())
        > sum(of_seeds(v, x, "TS", "ece_l2_mass", [part]).values())
        for x in v.losses
        for part in (*CORRUPTED, NATURAL)
    )
    cases = len(v.losses) * (len(CORRUPTED) + 1)
    also = "agrees" if 2 * soft < cases else "reports the opposite"
    named = lambda some: ", ".join(f"`{x}`" for x in some) or "none"  # noqa: E731
    return (
        f"For cross-entropy, temperature scaling changes the ECE by {clean.shown(1)} points on "
        f"clean "
        f"samples and by {moved.shown(1)} under corruptions. Losses with a lower ECE than "
        f"cross-entropy under corruptions, uncalibrated: {named(before)}; both after temperature "
        f"scaling: {named(after)}. Fitting the temperature by soft-binned ECE instead of "
        f"likelihood "
        f"gives the *higher* ECE in {soft} of {cases} cases of loss and shift (karandikar2021 "
        f"{also})."
    )


def memorised() -> str:
    """The largest training error of the heads, by data set."""
    texts = []
    for data in (name for name in NAMES if name.startswith("features-")):
        errors = training_errors(data)
        worst = max(errors, key=lambda loss: errors[loss])
        plain, largest = 100 * errors[CE], 100 * errors[worst]
        texts.append(f"{NAMES[data]} {plain:.1f} % and {largest:.1f} % (`{worst}`)")
    return (
        "Training error of the heads in the last epoch, mean over seeds: first of cross-entropy, "
        "then of the loss with the largest error among those of mukhoti2020, singh2021 and, on "
        f"texts, wang2021 (mixup left out). {'; '.join(texts)}."
    )


def training_errors(data: str) -> dict[str, float]:
    """Mean training error over seeds by loss, as collected from the records of epochs."""
    runs = pq.read_table(FOLDER / f"{data}.parquet", columns=["run"])["run"]
    keys = set(runs.unique().to_pylist())
    found: dict[str, list[float]] = defaultdict(list)
    errors = pq.read_table(FOLDER / "derived.parquet", filters=[("metric", "==", "train_error")])
    for row in errors.to_pylist():
        # The error of mixup is that on mixed samples, and says nothing about the training samples.
        if row["run"] in keys and row["method"] != "mixup":
            found[row["method"]].append(row["value"])
    return {loss: sum(values) / len(values) for loss, values in found.items()}


def known() -> str:
    """How many claims of the papers our numbers support."""
    names = [claim.name for claim in verdicts.empirical()]
    count = verdicts.counts(names)
    untested = sum(not verdicts.words_of(name) for name in names)
    decided = len(names) - count["cannot tell"]
    mixed = ", ".join(name for name in names if verdicts.overall(name) == verdicts.MIXED)
    sources = ", ".join(
        f"{len(verdicts.decided_by(source, names))} by {shown}"
        for source, shown in verdicts.SOURCES.items()
    )
    return (
        f"Of the {len(names)} empirical claims of [the papers](papers/index.md), {decided} are "
        f"decided by our numbers ({sources}): {count['holds']} hold, {count['does not hold']} do "
        f"not, and on {count[verdicts.MIXED]} our sources disagree ({mixed}). "
        f"{count['cannot tell']} are undecided, {untested} of them because we have no numbers. "
        f"{len(CLAIMS) - len(names)} more are mathematics."
        f"{tuning_left(names, decided)}"
    )


def tuning_left(names: list[str], decided: int) -> str:
    """Which of the decided claims are about coefficients that the paper tunes and we did not."""
    some = verdicts.untuned(names)
    verb, (they, them) = verdicts.are(some), ("it", "it") if len(some) == 1 else ("they", "them")
    return (
        f" {len(some)} of the decided claims ({', '.join(some)}) {verb} from a paper that tunes "
        f"its coefficients, and {verb} decided by runs with fixed ones only; with tuned ones "
        f"{they} {verb} undecided. Without {them}, {decided - len(some)} claims are decided."
        if some
        else ""
    )


def blocks() -> dict[str, str]:
    """The text of every block of docs/which.md that is made of sentences."""
    import headline
    import sensitivity

    return {
        "advice": advice(),
        "losses-compared": losses_compared(),
        "refinement": refinement(),
        "shifted": shifted(),
        "known": known(),
        "memorised": memorised(),
        "headline": headline.table(),
        "sensitivity": sensitivity.ece_depends(),
        "temperatures": sensitivity.temperatures(),
    }
