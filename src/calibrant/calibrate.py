"""Calibration of files, as done by ``calibrant calibrate``."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import io
from calibrant import metrics as m
from calibrant._core.checks import (
    check_count,
    check_fraction,
    check_seed,
    near_name,
    refuse,
)
from calibrant._core.files import replacing, same_file
from calibrant._core.formatting import aligned, json_number, show, show_bounds
from calibrant._measure import Panel, bounds_note, measure, panel_of_stream
from calibrant.calibrators import (
    CALIBRATORS,
    Calibrator,
    Selection,
    automatic,
    load_calibrator,
)
from calibrant.calibrators._composite import out_of_fold
from calibrant.inference._resampling import LEAST_DRAWS
from calibrant.predictions import Predictions, _only, in_samples
from calibrant.streaming import Accumulator, ParquetShards, parquet_files

AUTO = "auto"
JUDGED = (
    "accuracy",
    "nll",
    "brier",
    "ece",
    "adaptive_ece",
    "debiased_ece",
    "classwise_ece",
    "auroc",
)
FOLDS = 5
# A Parquet file of more values than this is read batch by batch.
SLAB_ELEMENTS = 1 << 26

Progress = Callable[[str, int, int], None]


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class CalibrationReport:
    """The fitted calibrator, and the metrics before and after. Prints as text.

    ``before`` and ``after`` are None if there are no labels.
    """

    calibrator: Calibrator
    origin: str
    selection: Selection | None = None
    judged: str = ""
    before: Panel | None = None
    after: Panel | None = None
    notes: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [] if self.selection is None else [str(self.selection)]
        parts.append(f"{self.calibrator!r}, {self.origin}: {_learned(self.calibrator)}")
        if self.before is not None and self.after is not None:
            size = f"{in_samples(self.before.num_samples)}, {self.before.num_classes:,} classes"
            parts += [f"{size}, {self.judged}", _table(self.before, self.after)]
        parts += self.notes
        if self.written:
            parts.append(f"Written: {', '.join(self.written)}")
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "calibrator": repr(self.calibrator),
            "origin": self.origin,
            "num_parameters": self.calibrator.num_parameters(),
            "learned": _numbers(self.calibrator),
            "selection": None if self.selection is None else _selection_dict(self.selection),
            "judged": self.judged,
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "notes": list(self.notes),
            "written": list(self.written),
        }


def _learned(calibrator: Calibrator) -> str:
    count, numbers = calibrator.num_parameters(), _numbers(calibrator)
    if count == len(numbers) == 1:
        return next(f"{name} = {value:.6g}" for name, value in numbers.items())
    return f"{count:,} parameters"


def _numbers(calibrator: Calibrator) -> dict[str, float]:
    """The fitted parameters that are single numbers."""
    names = [name for name, shape in calibrator.learned.items() if shape == ()]
    return {name.removesuffix("_"): float(getattr(calibrator, name)) for name in names}


def _table(before: Panel, after: Panel) -> str:
    bounded = any(found.low == found.low for found in before.measured.values())  # not NaN
    level = next(iter(before.measured.values())).level
    bounds = f"{100 * level:g}% interval" if bounded else ""
    rows = [["metric", "before", bounds, "after", bounds]]
    for name in before:
        percent = m.METRICS[name].percent
        row = [m.METRICS[name].label]
        for panel in (before, after):
            found = panel.interval(name)
            row.append(show(found.value, percent=percent))
            row.append(show_bounds(found.low, found.high, percent=percent) if bounded else "")
        rows.append(row)
    return aligned(rows)


def _selection_dict(selection: Selection) -> dict[str, Any]:
    return {
        "chosen": selection.chosen,
        "criterion": selection.criterion,
        "candidates": [
            {
                "name": c.name,
                "loss": json_number(c.loss),
                "behind": json_number(c.behind),
                "error": json_number(c.error),
                "num_parameters": c.parameters,
                "verdict": c.verdict,
            }
            for c in selection.candidates
        ],
    }


def calibrate_files(  # noqa: PLR0913 - all are keywords with defaults
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
    progress
        Called with the current step, the amount done, and the total.
    """
    paths = {"out": out, "save": save, "onnx": onnx}
    outputs = {name: Path(path) for name, path in paths.items() if path is not None}
    judge = _Judge(level, replicates, seed)
    fitting = _Fitting.checked(fit, load, method, dict(options or {}), seed)
    source = _Source.of([str(path) for path in apply], outputs)
    _check_outputs(outputs, [fitting.path, *source.files])
    with ExitStack() as stack:
        places = {name: stack.enter_context(replacing(path)) for name, path in outputs.items()}
        report = fitting.run(progress)
        if "save" in places:
            report.calibrator.save(places["save"])
        if "onnx" in places:
            report.calibrator.to_onnx(places["onnx"])
        if source.files:
            report = source.apply(report, places["out"], judge, progress)
            report = _with_note_of_overlap(report, fitting.path, source.files)
        elif fitting.predictions is not None:
            report = _judged_out_of_fold(report, fitting.predictions, judge)
    return replace(report, written=tuple(map(str, outputs.values())))


# --- arguments --------------------------------------------------------------------------------


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Parse ``key=value`` strings; a value is JSON, or else a string.

    >>> parse_options(["bins=10", "binning=mass"])
    {'bins': 10, 'binning': 'mass'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key or key in found:
            rule, advice = (
                "must have the form key=value, each key once",
                "Write for example bins=10.",
            )
            raise refuse("option", rule, f"got {text!r}", advice)
        try:
            found[key] = json.loads(value)
        except (ValueError, RecursionError):
            found[key] = value
    return found


ENDINGS = {"save": ".json", "onnx": ".onnx"}


def _check_outputs(outputs: Mapping[str, Path], inputs: Sequence[Path]) -> None:
    """Reject outputs that cannot be written, or that are inputs, before any work."""
    seen = list(inputs)
    for name, path in outputs.items():
        ending = ENDINGS.get(name)
        if ending and path.suffix.lower() != ending:
            raise refuse(name, f"must end in {ending}", f"got {path.name!r}", "Rename it.")
        if path.is_dir() or not path.parent.is_dir():
            rule, advice = "must be a file in an existing folder", "Check the path."
            raise refuse(name, rule, f"got {str(path)!r}", advice)
        if any(same_file(path, other) for other in seen):
            rule, advice = "must not be an input or another output", "Choose another name."
            raise refuse(name, rule, f"got {str(path)!r}", advice)
        seen.append(path)


def _new_calibrator(method: str, options: dict[str, Any], seed: int) -> Calibrator:
    """An unfitted calibrator with valid parameters."""
    kind = CALIBRATORS[method]
    known = [field.name for field in fields(kind) if field.init]  # type: ignore[arg-type]
    unknown = [key for key in options if key not in known]
    if unknown:
        advice = near_name(unknown[0], known) if known else "It has none."
        raise refuse("option", f"must be one that {method} has", f"got {unknown[0]!r}", advice)
    if "seed" in known:
        options = {"seed": seed} | options
        check_seed(options["seed"])
    calibrator = kind(**options)
    calibrator._check()
    return calibrator


# --- the calibrator ---------------------------------------------------------------------------


@dataclass
class _Fitting:
    """The source of the calibrator. ``predictions`` are those of the fit, once they are read."""

    path: Path
    method: str | None
    calibrator: Calibrator | None
    seed: int
    predictions: Predictions | None = None

    @classmethod
    def checked(
        cls,
        fit: str | Path | None,
        load: str | Path | None,
        method: str | None,
        options: dict[str, Any],
        seed: int,
    ) -> _Fitting:
        """Reject arguments that do not go together."""
        if fit is None and load is None:
            raise refuse("fit", "or load is needed", "got neither", "Name a file to fit on.")
        if fit is None or load is not None:
            if fit is not None or method is not None or options:
                rule, advice = "takes no fit, method or option", "Use either load, or these."
                raise refuse("load", rule, "got both", advice)
            assert load is not None
            return cls(Path(load), None, None, seed)
        method = AUTO if method is None else method
        if method != AUTO and method not in CALIBRATORS:
            advice = near_name(method, (AUTO, *CALIBRATORS))
            raise refuse("method", "must be a calibrator", f"got {method!r}", advice)
        if method != AUTO:
            return cls(Path(fit), method, _new_calibrator(method, options, seed), seed)
        if options:
            rule, advice = "belongs to a method", "Name one, for example temperature."
            raise refuse("option", rule, f"got {', '.join(options)} with {AUTO}", advice)
        return cls(Path(fit), method, None, seed)

    def run(self, progress: Progress) -> CalibrationReport:
        """Fit or load the calibrator."""
        if self.method is None:
            calibrator = load_calibrator(self.path)
            if not isinstance(calibrator, Calibrator):
                rule, advice = "must not need features here", "Apply it in Python."
                raise refuse("load", rule, f"got {type(calibrator).__name__}", advice)
            if "groups_" in vars(calibrator):
                rule, advice = "must not be fitted with groups here", "Apply it in Python."
                raise refuse("load", rule, f"got {self.path.name}", advice)
            return CalibrationReport(calibrator, f"from {self.path.name}")
        p = self.predictions = Predictions.load(self.path)
        if p.num_samples == 1:
            rule, advice = "must have at least two samples", "Collect more predictions."
            raise refuse("fit", rule, "got 1", advice)
        origin = f"fitted on {in_samples(p.num_samples)} of {self.path.name}"
        if self.calibrator is not None:
            return CalibrationReport(self.calibrator.fit(p), origin)
        advance = partial(progress, "trying methods")
        selection = automatic(p, seed=self.seed, progress=advance)
        return CalibrationReport(selection.calibrator, origin, selection)


# --- the data it is applied to ----------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """Files to calibrate: one file read into memory, or Parquet shards."""

    files: tuple[Path, ...]
    shards: ParquetShards | None
    out: Path | None

    @classmethod
    def of(cls, patterns: Sequence[str], outputs: Mapping[str, Path]) -> _Source:
        """Find the files, and reject an output that does not match them."""
        out = outputs.get("out")
        if bool(patterns) != (out is not None):
            rule, got = "and out go together", f"got only {'out' if out else 'apply'}"
            raise refuse("apply", rule, got, "Give both the data and the output file.")
        if out is None:
            return cls((), None, None)
        io.writer_for(out)
        shards = _as_shards(patterns)
        if shards is None:
            return cls((Path(patterns[0]),), None, out)
        if out.suffix.lower() != ".parquet":
            rule, advice = "must end in .parquet for Parquet data of this size", "Rename it."
            raise refuse("out", rule, f"got {out.name!r}", advice)
        return cls(shards.files, shards, out)

    def apply(
        self, report: CalibrationReport, place: Path, judge: _Judge, progress: Progress
    ) -> CalibrationReport:
        """Write the calibrated data and measure it."""
        if self.shards is not None:
            return _apply_to_shards(report, self.shards, place, progress)
        assert self.out is not None
        p, labelled = _load_scores(self.files[0])
        calibrated = report.calibrator.transform(p)
        io.writer_for(self.out)(place, _columns(calibrated, labelled=labelled))
        if not labelled:
            return replace(report, notes=(NO_LABELS,))
        where = self.files[0].name
        return replace(report, judged=where, before=judge(p), after=judge(calibrated))


NO_LABELS = "No metrics: the data have no labels."


def _as_shards(patterns: Sequence[str]) -> ParquetShards | None:
    """The Parquet files meant, or None for a single file to be read whole."""
    if len(patterns) == 1 and not Path(patterns[0]).is_dir():
        single = Path(patterns[0])
        if single.is_file() or not glob.has_magic(patterns[0]):
            if not single.is_file():
                raise FileNotFoundError(f"{single}: no such file. Check the path.")
            if single.suffix.lower() != ".parquet":
                return None
            shards = ParquetShards.open([single])
            return shards if shards.num_rows * shards.row_values > SLAB_ELEMENTS else None
    files = parquet_files(patterns, "apply")
    wrong = [file for file in files if Path(file).suffix.lower() != ".parquet"]
    if wrong:
        rule, advice = (
            "must be one file, or Parquet files",
            "Convert them, or run the command once per file.",
        )
        raise refuse("apply", rule, f"got {Path(wrong[0]).name!r}", advice)
    return ParquetShards.open(files)


def _load_scores(path: Path) -> tuple[Predictions, bool]:
    """Predictions, and whether the file has labels; they are all 0 where it has none."""
    columns = io.read(path, need_labels=False)
    arrays, labelled = columns.arrays, "labels" in columns.arrays
    if not labelled:
        scores = next(iter(arrays.values()), np.empty(0))
        columns = replace(columns, arrays={**arrays, "labels": np.zeros(scores.shape[:1], int)})
    given = _only(columns, path, ("logits", "probs", "labels"))
    return Predictions(**given, classes=columns.classes, meta=columns.meta), labelled


def _columns(p: Predictions, *, labelled: bool) -> io.Columns:
    arrays: dict[str, Any] = {p._kind: p._scores} | ({"labels": p.labels} if labelled else {})
    return io.Columns(arrays, p.classes, dict(p.meta))


def _apply_to_shards(
    report: CalibrationReport, shards: ParquetShards, place: Path, progress: Progress
) -> CalibrationReport:
    """Calibrate batch by batch into one file."""
    totals: list[Accumulator] = []
    done = 0
    with io.parquet_writer(place) as write:
        for p in shards.batches():
            calibrated = report.calibrator.transform(p)
            write(_columns(calibrated, labelled=shards.labelled))
            if shards.labelled:
                totals = totals or [Accumulator(p.num_classes) for _ in range(2)]
                for total, batch in zip(totals, (p, calibrated), strict=True):
                    total.update(batch)
            done += p.num_samples
            progress("calibrating rows", done, shards.num_rows)
    if not totals:
        return replace(report, notes=(NO_LABELS,))
    before, after = (_judged_panel(total) for total in totals)
    where = (
        f"{len(shards.files):,} Parquet files" if len(shards.files) > 1 else shards.files[0].name
    )
    return replace(
        report, judged=where, before=before, after=after, notes=(_stream_note(before, after),)
    )


def _judged_panel(total: Accumulator) -> Panel:
    panel = panel_of_stream(total)
    return replace(panel, measured={name: panel.interval(name) for name in JUDGED})


def _stream_note(*panels: Panel) -> str:
    widest = {name: max(panel.error_bounds[name] for panel in panels) for name in JUDGED}
    return f"No intervals in a stream. {bounds_note(widest)}"


# --- before and after -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """Measures predictions with intervals."""

    level: float
    replicates: int
    seed: int

    def __post_init__(self) -> None:
        check_fraction("level", self.level, example=0.95)
        check_count("replicates", self.replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
        check_seed(self.seed)

    def __call__(self, p: Predictions) -> Panel:
        return measure(
            p, metrics=JUDGED, level=self.level, replicates=self.replicates, seed=self.seed
        )


def _judged_out_of_fold(
    report: CalibrationReport, p: Predictions, judge: _Judge
) -> CalibrationReport:
    """Evaluate on the fit data, each sample calibrated by a fit that did not see it."""
    folds = min(FOLDS, p.num_samples)
    held_out = out_of_fold(report.calibrator, p, None, folds, judge.seed)
    note = (
        "A calibrator looks better than it is on the data it was fitted to. So “after” is out of "
        f"fold: each of {folds} folds was calibrated by a fit to the others."
    )
    if report.selection is not None:
        note += " The method was chosen on all samples, so “after” is still slightly optimistic."
    return replace(
        report, judged="out of fold", before=judge(p), after=judge(held_out), notes=(note,)
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
