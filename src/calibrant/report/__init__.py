"""Reports: one self-contained, interactive HTML file on models or on a study.

The file includes everything it needs, also Plotly, and makes no network requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._core.checks import (
    check_bins,
    check_count,
    refuse,
)
from calibrant._core.extras import need_extra
from calibrant._core.files import check_output
from calibrant._multilabel import MultiLabel
from calibrant.predictions import Confidences, Predictions
from calibrant.report._judge import check_models, data_of_models, judge_models
from calibrant.report._labels_page import body_of_labels, judge_taggers
from calibrant.report._models_page import body_of_models
from calibrant.report._page import write_page
from calibrant.report._settings import Settings
from calibrant.report._study import cells_of, data_of_study
from calibrant.report._study_page import body_of_study
from calibrant.report._verdict import Verdict

if TYPE_CHECKING:
    from calibrant.study import Study

__all__ = ["Verdict", "write_report", "write_study_report"]


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


def write_report(  # noqa: PLR0913 - all but the first two are keywords with defaults
    models: Mapping[str, Predictions | Confidences | MultiLabel],
    path: str | Path,
    *,
    title: str = "Calibration report",
    positive: int | str | bool | None = None,
    by: str | None = None,
    threshold: float = 0.5,
    costs: tuple[float, float] = (1.0, 1.0),
    bins: int = 15,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = _silent,
) -> dict[str, Verdict]:
    """Write a report on one or more models; return the verdict on each.

    The page starts with the verdict in plain words, and shows reliability, ECE and NLL at any
    temperature and in any bins, all metrics with intervals, paired differences between the models,
    the calibrators tried, the worst-calibrated classes and the most overconfident mistakes. Of
    two-class models it starts with the risk of the positive class. Groups and clusters have a
    section each. Multi-label models have a page of their own. It takes seconds; a minute at 50,000
    samples of 1,000 classes.

    Parameters
    ----------
    models
        Predictions, Confidences or MultiLabel by name, at most 8; multi-label models only with
        others of their kind. Models evaluated on the same samples are compared.
    path
        Output file (HTML), replaced if it exists.
    title
        The heading.
    positive, threshold, costs
        As for ``measure``: the class that is asked about (by default class 1 of two; False leaves
        only the top label), the threshold of the net benefit and the costs of wrong decisions.
    by
        The grouping to show; by default every one of the predictions with at most 40 groups.
    bins, level, replicates, seed
        Number of bins (at most 100, also the initial value of the page), confidence level, number
        of bootstrap replicates, and seed.
    progress
        Called with the current step, the amount done, and the total.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     p = load_example("cross_entropy").take(range(300))
    ...     found = write_report({"CE": p}, Path(folder) / "report.html", replicates=50)
    >>> print(found["CE"].headline)
    Strongly overconfident: it says 93.5 % on average and is right 77.0 % of the time.
    """
    check_count("bins", check_bins(bins), least=1, most=100, example=15)
    settings = Settings(level, replicates, seed, bins, positive, threshold, costs, by)
    check_output("path", path)
    need_extra("plotly", "A report")
    check_models(models)
    if any(isinstance(p, MultiLabel) for p in models.values()):
        return _write_labels(models, path, title, settings)
    found = judge_models(models, settings, progress)
    body = body_of_models(found, settings)
    write_page(path, title=title, body=body, data=data_of_models(found, settings))
    return {name: j.verdict for name, j in zip(models, found.models, strict=True)}


def _write_labels(
    models: Mapping[str, Any], path: str | Path, title: str, settings: Settings
) -> dict[str, Verdict]:
    for name, p in models.items():
        if not isinstance(p, MultiLabel):
            rule, advice = "must all be of one kind", "Write one report for each kind."
            got = f"got {type(p).__name__} for {name!r} beside MultiLabel"
            raise refuse("models", rule, got, advice)
    for argument in ("positive", "by"):
        if getattr(settings, argument) is not None:
            rule, advice = "belongs to one label per sample", "Leave it out."
            raise refuse(argument, rule, "got it with MultiLabel", advice)
    judged = judge_taggers(models, settings)
    write_page(path, title=title, body=body_of_labels(judged, settings), data={})
    return {name: j.verdict for name, j in zip(models, judged, strict=True)}


def write_study_report(
    folder: str | Path,
    path: str | Path,
    *,
    title: str = "Study report",
    study: Study | None = None,
) -> None:
    """Write a report on a study: conclusions, a sortable table, trade-offs, shifts.

    Parameters
    ----------
    folder
        Results folder written by ``calibrant study run --out``.
    path
        Output file (HTML), replaced if it exists.
    title
        The heading.
    study
        The study, to include only its runs if the folder holds others, and to compare its
        objectives with the first one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from calibrant.results import Store
    >>> place = {"data": "d", "model": "m", "objective": "ce", "calibrator": "none", "part": "test"}
    >>> with TemporaryDirectory() as name:
    ...     rows = [{"run": "k", "seed": 0, **place, "metric": "ece", "value": 0.1}]
    ...     Store(name).write("k", rows, {})
    ...     write_study_report(name, Path(name) / "report.html")
    ...     (Path(name) / "report.html").stat().st_size < 6_000_000
    True
    """
    from calibrant.results import read_all

    check_output("path", path)
    need_extra("plotly", "A report")
    table = read_all(folder, labels=None if study is None else study.labels)
    cells = cells_of(table)
    body = body_of_study(cells, table, study)
    write_page(path, title=title, body=body, data={"study": data_of_study(cells)})
