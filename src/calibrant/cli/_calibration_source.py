"""The files that the command ``calibrate`` applies a calibrator to, whole or batch by batch."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrant import io
from calibrant._core.checks import refuse
from calibrant._loading import load
from calibrant._measure import Panel, bounds_note, panel_of_stream
from calibrant._multilabel import MultiLabel
from calibrant.calibrators import Calibrator
from calibrant.cli._calibration_report import CalibrationReport, size_in_words
from calibrant.metrics import default_metrics
from calibrant.predictions import Confidences, Predictions, note_ignored
from calibrant.streaming import STREAM_OPTIONS, Accumulator, ParquetShards, parquet_files

# A Parquet file of more values than this is read batch by batch.
SLAB_ELEMENTS = 1 << 26
NO_LABELS = "No metrics: the data have no labels."

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Source:
    """Files to calibrate: one file read into memory, or Parquet shards."""

    files: tuple[Path, ...]
    shards: ParquetShards | None
    out: Path | None
    layout: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None

    @classmethod
    def of(
        cls, patterns: Sequence[str], outputs: Mapping[str, Path], layout: Mapping[str, Any]
    ) -> Source:
        """Find the files, and reject an output that does not match them."""
        out = outputs.get("out")
        if bool(patterns) != (out is not None):
            got, advice = (
                f"got only {'--out' if out else '--apply'}",
                "Name the data and the output file.",
            )
            raise refuse("--apply and --out", "must be given together", got, advice)
        if out is None:
            return cls((), None, None)
        io.writer_for(out, "--out")
        shards = _as_shards(patterns, layout)
        if shards is None:
            url = patterns[0] if io.is_url(patterns[0]) else None
            return cls((Path(patterns[0]),), None, out, layout, url)
        note_ignored(shards.files[0].name, shards.ignored)
        if out.suffix.lower() != ".parquet":
            rule, advice = "must end in .parquet for Parquet data of this size", "Rename it."
            raise refuse("--out", rule, f"got {out.name!r}", advice)
        return cls(tuple(f for f in shards.files if isinstance(f, Path)), shards, out)

    def apply(
        self,
        report: CalibrationReport,
        place: Path,
        measured: Callable[[Predictions | Confidences | MultiLabel], Panel],
        progress: Progress,
    ) -> CalibrationReport:
        """Write the calibrated data and measure it."""
        if self.shards is not None:
            return _apply_to_shards(report, self.shards, place, progress)
        assert self.out is not None
        p: Any = load(self.url or self.files[0], **self.layout)
        calibrated: Any = report.calibrator.transform(p)
        io.writer_for(self.out)(place, calibrated.columns())
        if not isinstance(p, Predictions | Confidences | MultiLabel):
            return replace(report, notes=(NO_LABELS,))
        return replace(
            report,
            size=size_in_words(p),
            judged=self.files[0].name,
            before=measured(p),
            after=measured(calibrated),
        )


def _as_shards(patterns: Sequence[str], options: Mapping[str, Any]) -> ParquetShards | None:
    """The Parquet files meant, or None for a single file to be read whole."""
    layout = io.Layout.of({k: v for k, v in options.items() if k in STREAM_OPTIONS})
    if len(patterns) == 1 and io.is_url(patterns[0]):
        return None
    if len(patterns) == 1 and not Path(patterns[0]).is_dir():
        single = Path(patterns[0])
        if single.is_file() or not glob.has_magic(patterns[0]):
            if not single.is_file():
                raise FileNotFoundError(f"{single}: no such file. Check the path.")
            if single.suffix.lower() != ".parquet":
                return None
            shards = ParquetShards.open([single], layout=layout)
            return shards if shards.num_rows * shards.row_values > SLAB_ELEMENTS else None
    files = parquet_files(patterns, "apply")
    wrong = [file for file in files if Path(file).suffix.lower() != ".parquet"]
    if wrong:
        rule, advice = (
            "must be one file, or Parquet files",
            "Convert them, or run the command once per file.",
        )
        raise refuse("--apply", rule, f"got {Path(wrong[0]).name!r}", advice)
    return ParquetShards.open(files, layout=layout)


def _apply_to_shards(
    report: CalibrationReport, shards: ParquetShards, place: Path, progress: Progress
) -> CalibrationReport:
    """Calibrate batch by batch into one file."""
    if not isinstance(report.calibrator, Calibrator):
        rule, advice = "must be one file for several labels per sample", "Apply it file by file."
        raise refuse("--apply", rule, f"got {len(shards.files):,} Parquet files", advice)
    totals: list[Accumulator] = []
    done = 0
    with io.parquet_writer(place) as write:
        for p in shards.batches():
            calibrated = report.calibrator.transform(p)
            write(calibrated.columns())
            if isinstance(p, Predictions) and isinstance(calibrated, Predictions):
                totals = totals or [Accumulator(p.num_classes) for _ in range(2)]
                for total, batch in zip(totals, (p, calibrated), strict=True):
                    total.update(batch)
            done += p.num_samples
            progress("calibrating rows", done, shards.num_rows)
    if not totals:
        return replace(report, notes=(NO_LABELS,))
    before, after = (_panel_of(total) for total in totals)
    where = (
        f"{len(shards.files):,} Parquet files" if len(shards.files) > 1 else shards.files[0].name
    )
    return replace(
        report,
        size=before.size,
        judged=where,
        before=before,
        after=after,
        notes=(_stream_note(before, after),),
    )


def _panel_of(total: Accumulator) -> Panel:
    panel = panel_of_stream(total)
    return replace(
        panel, measured={name: panel.interval(name) for name in default_metrics("calibrate")}
    )


def _stream_note(*panels: Panel) -> str:
    widest = {
        name: max(panel.error_bounds[name] for panel in panels)
        for name in default_metrics("calibrate")
    }
    return f"No intervals in a stream. {bounds_note(widest)}"
