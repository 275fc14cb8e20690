"""Reports: one self-contained, interactive HTML file on models or on a study.

The file includes everything it needs, also Plotly, and makes no network requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._core.checks import (
    check_bins,
    check_count,
    refuse,
)
from calibrant.predictions import Confidences, Predictions
from calibrant.report._judge import Settings, data_of_models, judge_models
from calibrant.report._models_page import body_of_models
from calibrant.report._page import write_page
from calibrant.report._study import cells_of, data_of_study
from calibrant.report._study_page import body_of_study
from calibrant.report._verdict import Verdict

if TYPE_CHECKING:
    from calibrant.study import Study

__all__ = ["Verdict", "write_report", "write_study_report"]


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


def write_report(
    models: Mapping[str, Predictions | Confidences],
    path: str | Path,
    *,
    title: str = "Calibration report",
    bins: int = 15,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = _silent,
) -> dict[str, Verdict]:
    """Write a report on one or more models; return the verdict on each.

    The page starts with the verdict in plain words, and shows reliability, ECE and NLL at any
    temperature and in any bins, all metrics with intervals, paired differences between the models,
    the calibrators tried, the worst-calibrated classes and the most overconfident mistakes. It
    takes seconds; a minute at 50,000 samples of 1,000 classes.

    Parameters
    ----------
    models
        Predictions or Confidences by name, at most 8. Models evaluated on the same samples are
        compared.
    path
        Output file (HTML), replaced if it exists.
    title
        The heading.
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
    ...     p = load_example("cross_entropy")
    ...     found = write_report({"CE": p}, Path(folder) / "report.html", replicates=50)
    >>> print(found["CE"].headline)
    Strongly overconfident: it says 93.9 % on average and is right 81.4 % of the time.
    """
    check_count("bins", check_bins(bins), least=1, most=100, example=15)
    settings = Settings(level, replicates, seed, bins)
    _check_target(path)
    found = judge_models(models, settings, progress)
    body = body_of_models(found, settings)
    write_page(path, title=title, body=body, data=data_of_models(found, settings))
    return {name: j.verdict for name, j in zip(models, found.models, strict=True)}


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

    _check_target(path)
    table = read_all(folder, labels=None if study is None else study.labels)
    cells = cells_of(table)
    body = body_of_study(cells, table, study)
    write_page(path, title=title, body=body, data={"study": data_of_study(cells)})


def _check_target(path: str | Path) -> None:
    """Reject a file that cannot be written, before any work."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        rule, advice = "must be a file in an existing folder", "Check the path."
        raise refuse("path", rule, f"got {str(path)!r}", advice)
