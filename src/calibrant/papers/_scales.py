"""Four scales of the same experiments: which study files a paper needs, what stands for what.

``recipes/SCALE/*.toml`` are study files, and ``recipes/SCALE.toml`` says for each paper which of
them answer which question, and which of our data and networks stand for the published ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from calibrant._core.checks import near_name, refuse
from calibrant.study import Run, Study

SCALES = {
    "smoke": "embedded data, seconds: shows that everything runs",
    "features": "real data, small heads on features of a pretrained network, an hour on one core",
    "cpu": "real data and small networks, hours on two cores",
    "paper": "the recipe of the paper, on a GPU cluster",
}
#: No scale: nothing is trained, and claims are tested on predictions of public networks.
NETWORKS = "networks"
#: No scale either: of the scale features the runs whose coefficients were tuned.
TUNED = "tuned"
_NOTES = {
    NETWORKS: "Predictions of public pretrained networks; intervals are over networks.",
    TUNED: "Scale features, coefficients tuned as in appendix E of karandikar2021; "
    "of the other papers nothing was tuned.",
}
RECIPE_FOLDER = Path(__file__).with_name("recipes")

# What a paper calls temperature scaling differs; these are the labels in our study files.
CALIBRATOR_LABELS: dict[str, dict[str, str]] = {
    "loss_report": {"none": "none"},
    "wang2021": {"none": "none", "temperature": "TS-ECE", "histogram": "HB"},
    "singh2021": {"none": "none", "temperature": "TS-fixed", "confidnet": "ConfidNet"},
    "mukhoti2020": {"none": "none", "temperature": "TS-ECE"},
    "karandikar2021": {"none": "none", "temperature": "TS", "temperature_soft_ece": "TS-SB-ECE"},
}
# karandikar2021 measures ECE with the L2 norm and bins of equal mass; error is 1 - accuracy.
METRIC_NAMES: dict[str, dict[str, str]] = {"karandikar2021": {"ece": "ece_l2_mass"}}


def method_name(objective: str, secondary: str | None) -> str:
    """The label of a method in our study files: its losses without coefficients.

    >>> method_name("cross_entropy", "logit_norm")
    'cross_entropy + logit_norm'
    """
    return f"{objective} + {secondary}" if secondary else objective


@dataclass(frozen=True, order=True)
class Place:
    """Data, network and part (the test set or a shift of it) of some results."""

    data: str
    model: str
    part: str = "test"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read "data / model" or "data / model / part"."""
        return cls(*text.split(" / "))

    @property
    def setting(self) -> str:
        """Data and network as pages show them."""
        return f"{shown_data(self.data)}, {self.model}"

    def __str__(self) -> str:
        part = Path(self.part).stem if self.part.endswith(".npz") else self.part
        return self.setting + ("" if part == "test" else f", {part}")


def data_set(name: str) -> str:
    """The data set that some data come from: a file of features is named after it.

    >>> data_set("features/cifar10/cifar10.npz"), data_set("news20")
    ('cifar10', 'news20')
    """
    return Path(name).stem if name.endswith(".npz") else name


def shown_data(name: str) -> str:
    """Data as pages show them: a file of features by its folder.

    >>> shown_data("features/cifar10-c/cifar10.npz"), shown_data("cifar10")
    ('features of cifar10-c', 'cifar10')
    """
    return f"features of {Path(name).parent.name}" if name.endswith(".npz") else name


class Need(NamedTuple):
    """Runs that a table or figure needs: a question of the paper, and its methods (None: all)."""

    kind: str = "main"
    methods: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PaperAt:
    """A paper at a scale.

    Attributes
    ----------
    studies
        Names of the study files that answer a question: "main" for the tables, and where the
        paper has them "coefficients" (beyond those of "main"), "sizes", "epochs", "shift",
        "confidnet", "tuning" (where coefficients are tuned), "tuned" (the tables with them),
        "deeper" (the tables again with a deeper network, whose numbers are not at hand).
    settings
        For each published place the places of ours that stand for it. Of several, each is a setting
        of its own; figures with one panel show the first that was asked the question.
    note
        What must be said beside the numbers of this paper, if anything.
    """

    paper: str
    scale: str
    studies: Mapping[str, tuple[str, ...]]
    settings: Mapping[Place, tuple[Place, ...]]
    note: str = ""

    @property
    def places(self) -> list[Place]:
        """Our places, each once."""
        return list(dict.fromkeys(ours for some in self.settings.values() for ours in some))

    def study(self, kind: str, methods: Iterable[str] | None = None) -> list[Study]:
        """The studies for a question, with only the named methods."""
        whole = [load_study(self.scale, name) for name in self.studies.get(kind, ())]
        if methods is None:
            return whole
        wanted = set(methods)
        return [replace(s, runs=tuple(r for r in s.runs if r.name in wanted)) for s in whole]

    def runs(self, kind: str) -> list[Run]:
        """All runs for a question, each once."""
        return list({run.key: run for study in self.study(kind) for run in study.runs}.values())


@lru_cache
def load_study(scale: str, name: str) -> Study:
    """A study file of a scale."""
    return Study.load(RECIPE_FOLDER / scale / f"{name}.toml", training=False)


@lru_cache
def _scale(name: str) -> Mapping[str, object]:
    return tomllib.loads((RECIPE_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def scale_note(scale: str) -> str:
    """What must be known of numbers at this scale, of public networks or of tuned runs."""
    if scale in _NOTES:
        return _NOTES[scale]
    return str(_scale(check_scale(scale))["note"])


def check_scale(scale: str) -> str:
    """Refuse a scale that does not exist."""
    if scale not in SCALES:
        raise refuse("scale", "must be a known scale", f"got {scale!r}", near_name(scale, SCALES))
    return scale


def paper_at(paper: str, scale: str) -> PaperAt:
    """What a paper needs at a scale."""
    table = dict(_scale(check_scale(scale)).get(paper, {}))  # type: ignore[call-overload]
    standing = {k: [v] if isinstance(v, str) else v for k, v in table.pop("settings", {}).items()}
    settings = {Place.parse(k): tuple(map(Place.parse, some)) for k, some in standing.items()}
    note = table.pop("note", "")
    studies = {kind: tuple(names) for kind, names in table.items()}
    return PaperAt(paper, scale, studies, settings, note)


def tuned_at(paper: str) -> PaperAt:
    """A paper at scale features with tuned runs for its questions; empty if nothing was tuned."""
    at = paper_at(paper, "features")
    if TUNED not in at.studies:
        return replace(at, studies={}, settings={})
    return replace(at, studies=dict.fromkeys(("main", "shift"), at.studies[TUNED]))
