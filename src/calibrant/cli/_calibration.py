"""The steps of the command ``calibrate``: fit or load, apply, measure, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from calibrant._core.checks import near_name, refuse
from calibrant._core.files import same_file
from calibrant._core.formatting import in_samples
from calibrant._core.options import check_option_names
from calibrant._loading import load_measurable
from calibrant._measure import Panel, measure
from calibrant._multilabel import MultiLabel
from calibrant.calibrators import (
    AUTO,
    CALIBRATORS,
    DEFAULT_FOLDS,
    Calibrator,
    MultiLabelCalibrator,
    automatic,
    labels_out_of_fold,
    load_calibrator,
    make_calibrator,
    out_of_fold,
    usual_folds,
)
from calibrant.cli._calibration_report import CalibrationReport, size_in_words
from calibrant.cli._calibration_source import Progress, Source
from calibrant.cli._outputs import (
    check_outputs,
    named_outputs,
    write_calibrator,
    written_together,
)
from calibrant.inference import Resampling
from calibrant.metrics import METRICS, default_metrics
from calibrant.predictions import Confidences, Predictions

# The option that only calibrators of several labels per sample have.
SHRINKAGE = "shrinkage"

Record = Predictions | Confidences | MultiLabel
Measured = Callable[[Record], Panel]
TWO_CLASSES = 2
NOT_EVALUATED = (
    "All samples are in one cluster, so none can be held out: the calibrator is not evaluated. "
    "Name samples of other clusters with apply."
)


@dataclass
class Fitting:
    """The source of the calibrator. ``predictions`` are those of the fit, once they are read."""

    place: str | Path
    method: str | None
    calibrator: Calibrator | None
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    predictions: Record | None = None

    @property
    def path(self) -> Path:
        """The file; of a URL its name only."""
        return Path(self.place)

    @classmethod
    def checked(
        cls,
        fit: str | Path | None,
        load: str | Path | None,
        method: str | None,
        options: dict[str, Any],
        seed: int,
    ) -> Fitting:
        """Reject arguments that do not go together."""
        if fit is None and load is None:
            advice = "Name a file to fit on, or a saved calibrator."
            raise refuse("--fit or --load", "must be given", "got neither", advice)
        if fit is None or load is not None:
            if fit is not None or method is not None or options:
                rule, advice = "cannot be combined with --fit, --method or --option", "Drop one."
                raise refuse("--load", rule, "got both", advice)
            assert load is not None
            return cls(load, None, None, seed)
        method = AUTO if method is None else method
        if method != AUTO and method not in CALIBRATORS:
            advice = near_name(method, (AUTO, *CALIBRATORS))
            raise refuse("--method", "must name a calibrator", f"got {method!r}", advice)
        if SHRINKAGE in options:  # only the file shows whether there are several labels
            return cls(fit, method, None, seed, options)
        if method != AUTO:
            made = make_calibrator(method, options, seed=seed)
            return cls(fit, method, made, seed, options)
        if options:
            rule, advice = "belongs to a method", "Name one, for example --method temperature."
            raise refuse("--option", rule, f"got {', '.join(options)} with {AUTO}", advice)
        return cls(fit, method, None, seed)

    def run(self, progress: Progress) -> CalibrationReport:
        """Fit or load the calibrator."""
        if self.method is None:
            return CalibrationReport(self._loaded(), f"from {self.path.name}")
        p = self.predictions = load_measurable(self.place, **self.layout)
        if p.num_samples == 1:
            rule, advice = "must have at least two samples", "Collect more predictions."
            raise refuse("--fit", rule, "got 1", advice)
        origin = f"fitted on {in_samples(p.num_samples)} of {self.path.name}"
        if isinstance(p, MultiLabel):
            return CalibrationReport(self._for_labels().fit(p), origin)
        if SHRINKAGE in self.options:
            rule, advice = "belongs to several labels per sample", "Leave it out."
            raise refuse("--option", rule, f"got {SHRINKAGE} for {self.path.name}", advice)
        if self.calibrator is not None:
            return CalibrationReport(self.calibrator.fit(p), origin)
        advance = partial(progress, "trying methods")
        selection = automatic(p, seed=self.seed, progress=advance)
        return CalibrationReport(selection.calibrator, origin, selection)

    def _loaded(self) -> Calibrator | MultiLabelCalibrator:
        calibrator = load_calibrator(self.path)
        if isinstance(calibrator, MultiLabelCalibrator):
            return calibrator
        if not isinstance(calibrator, Calibrator):
            rule, advice = "must not need features here", "Apply it in Python."
            raise refuse("--load", rule, f"got {type(calibrator).__name__}", advice)
        if "groups_" in vars(calibrator):
            rule, advice = "must not be fitted with groups here", "Apply it in Python."
            raise refuse("--load", rule, f"got {self.path.name}", advice)
        return calibrator

    def _for_labels(self) -> MultiLabelCalibrator:
        """One calibrator per label; by default the usual method, since nothing is selected."""
        method: dict[str, Any] = {} if self.method == AUTO else {"method": self.method}
        allowed = MultiLabelCalibrator.option_names()
        check_option_names("calibrators of several labels", self.options, allowed)
        return MultiLabelCalibrator(**method, **self.options)


def _judged_out_of_fold(
    report: CalibrationReport, p: Record, measured: Measured, seed: int
) -> CalibrationReport:
    """Evaluate on the fit data, each sample calibrated by a fit that did not see it."""
    held_out: Record
    folds = min(DEFAULT_FOLDS, p.num_samples) if isinstance(p, MultiLabel) else usual_folds(p)
    if folds == 1:
        return replace(report, notes=(*report.notes, NOT_EVALUATED))
    if isinstance(p, MultiLabel):
        assert isinstance(report.calibrator, MultiLabelCalibrator)
        held_out = labels_out_of_fold(report.calibrator, p, folds, seed)
    else:
        assert isinstance(report.calibrator, Calibrator)
        held_out = out_of_fold(report.calibrator, p, None, folds, seed)
    note = (
        "A calibrator looks better than it is on the data it was fitted to. So “after” is out of "
        f"fold: each of {folds} folds was calibrated by a fit to the others."
    )
    if report.selection is not None:
        note += " The method was chosen on all samples, so “after” is still slightly optimistic."
    return replace(
        report,
        size=size_in_words(p),
        judged="out of fold",
        before=measured(p),
        after=measured(held_out),
        notes=(note,),
    )


def _with_note_of_overlap(
    report: CalibrationReport, fitted_on: Path, files: Sequence[Path]
) -> CalibrationReport:
    if report.after is None or not any(same_file(fitted_on, file) for file in files):
        return report
    note = (
        f"{fitted_on.name} was also used for the fit: “after” is optimistic. Leave out apply for "
        "out-of-fold results."
    )
    return replace(report, notes=(*report.notes, note))


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


def calibrate_files(
    *,
    fit: str | Path | None = None,
    load: str | Path | None = None,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    apply: Sequence[str | Path] = (),
    out: str | Path | None = None,
    save: str | Path | None = None,
    onnx: str | Path | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    layout: Mapping[str, Any] | None = None,
    progress: Progress = _silent,
) -> CalibrationReport:
    """Fit a calibrator on one file, or load one, and apply it to others.

    Everything is written under temporary names that are renamed at the end: if anything fails,
    nothing is written.

    Parameters
    ----------
    fit, load
        Predictions to fit on, or a saved calibrator instead.
    method, options
        ``"auto"`` (the default) or a name from ``CALIBRATORS``, and the arguments of its
        constructor.
    apply, out
        Predictions to calibrate, and the output file. Several files, a folder, a pattern, or one
        large file must be Parquet. They are written to one Parquet file, in bounded memory and
        without intervals. Labels are needed only for the metrics.
    save, onnx
        Where to write the calibrator as JSON and as an ONNX model.
    level, replicates, seed
        Confidence level, number of bootstrap replicates, and seed of the intervals and of all
        folds.
    layout
        How the files are read: the options of ``calibrant.load``.
    progress
        Called with the current step, the amount done, and the total.
    """
    outputs = named_outputs(out, save, onnx)
    resampling = Resampling(level, replicates, seed)

    def measured(p: Record) -> Panel:
        if isinstance(p, MultiLabel):
            return measure(p, **vars(resampling)).macro
        two = isinstance(p, Predictions) and p.num_classes == TWO_CLASSES
        names = default_metrics("binary compare" if two else "calibrate")
        if not isinstance(p, Predictions):
            names = tuple(name for name in names if METRICS[name].top_label)
        found: Panel = measure(p, metrics=names, **vars(resampling))
        return found

    fitting = Fitting.checked(fit, load, method, dict(options or {}), seed)
    fitting.layout = dict(layout or {})
    source = Source.of([str(path) for path in apply], outputs, fitting.layout)
    check_outputs(outputs, [fitting.path, *source.files])
    with written_together(outputs) as places:
        report = fitting.run(progress)
        write_calibrator(report.calibrator, places)
        if source.files:
            report = source.apply(report, places["out"], measured, progress)
            report = _with_note_of_overlap(report, fitting.path, source.files)
        elif fitting.predictions is not None:
            report = _judged_out_of_fold(report, fitting.predictions, measured, seed)
    return replace(report, written=tuple(map(str, outputs.values())))
