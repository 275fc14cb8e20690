"""Results that travel without their runs: values, records and derived measures in a few files.

``runs.parquet`` has one row per run: its key, its scale and its record as JSON. ``DATA.parquet``
has the values of a data set, with the columns of every result file; ``DATA-tuned.parquet`` those of
runs whose weight decay was tuned. ``derived.parquet`` has what
the claims need from epochs, learned samples and kept predictions: one row per measure and run.
Values are in single precision.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calibrant._core.checks import refuse
from calibrant._core.files import replacing
from calibrant.io import read_parquet
from calibrant.papers._results import Results, keys_of
from calibrant.papers._run_measures import Found, record_cells
from calibrant.papers._scales import CALIBRATOR_LABELS, SCALES, PaperAt, paper_at, shown_data
from calibrant.results import read_all
from calibrant.study import Run
from calibrant.study._tune import WEIGHT_DECAY

RUNS, DERIVED = "runs.parquet", "derived.parquet"
TEXT = pa.string()
RUN_SCHEMA = pa.schema([("run", TEXT), ("scale", TEXT), ("record", TEXT)])
DERIVED_SCHEMA = pa.schema(
    [(name, TEXT) for name in ("paper", "run", "metric", "method", "calibrator", "part")]
    + [("value", pa.float64())]
)
VALUE_SCHEMA = pa.schema(
    [(name, TEXT) for name in ("run", "part", "calibrator", "metric")] + [("value", pa.float64())]
)
# Where calibrators change no class, the same accuracies follow one another and take no room.
ORDER = ("model", "objective", "seed", "metric", "calibrator", "part")


def is_collected(out: str | Path) -> bool:
    """Whether a folder holds collected results instead of runs."""
    return (Path(out) / RUNS).is_file()


class Collected(Results):
    """The finished runs of a paper in a folder that :func:`collect` wrote."""

    @property
    def source(self) -> str:
        """Where the values come from, in words."""
        return f"the collected results of the scale {self.at.scale}"

    @cached_property
    def _values(self) -> dict[tuple[str, str, str, str], float]:
        return _values_of(self.out, self.at.scale)

    def finished(self, run: Run) -> Run | None:
        """The collected run of the same data, model, objective and seed, under the study's label.

        Its key may differ: recipes change, and a result remains what it was.
        """
        found = self._by_question.get(_question(run))
        if found is None or found.label == run.label:
            return found
        asked = found.key, run.label
        if asked not in self._relabelled:  # once: the key of a new record has to be computed
            self._relabelled[asked] = replace(found, label=run.label)
        return self._relabelled[asked]

    @cached_property
    def _relabelled(self) -> dict[tuple[str, str], Run]:
        return {}

    @property
    def _by_question(self) -> dict[tuple[object, ...], Run]:
        return _by_question(self.out, self.at.scale)

    def derived(self) -> Iterator[Found]:
        """The measures of :func:`record_cells`, as they were collected."""
        runs = _records(self.out, self.at.scale)
        for run, metric, method, calibrator, part, value in _measures(self.out)[self.at.paper]:
            if run in runs:
                yield Found(runs[run], metric, method, calibrator, part, value)


def results_of(at: PaperAt, out: str | Path) -> Results:
    """The results of a paper in a folder of runs or of collected results."""
    return Collected(at, out) if is_collected(out) else Results(at, out)


def scale_of(out: str | Path) -> str:
    """The scale with the most finished runs in a folder.

    >>> scale_of("no such folder")
    Traceback (most recent call last):
    calibrant._core.checks.InputError: --results must hold finished runs of the papers; got \
no such folder. Run calibrant papers run … --out first.
    """
    if is_collected(out):
        done = [row["scale"] for row in _read(Path(out) / RUNS, RUN_SCHEMA)]
        found = {scale: done.count(scale) for scale in SCALES}
    else:
        keys = {path.stem for path in (Path(out) / "results").glob("*.parquet")}
        found = {scale: len(keys & keys_of(scale)) for scale in SCALES}
    best = max(found, key=lambda scale: found[scale])
    if not found[best]:
        rule = "must hold finished runs of the papers"
        raise refuse("--results", rule, f"got {out}", "Run calibrant papers run … --out first.")
    return best


# --- writing -----------------------------------------------------------------------------------


def collect(out: str | Path, folder: str | Path, *, add: bool = False) -> dict[str, int]:
    """Collect the finished runs of the papers in ``out``; gives the rows of each file written.

    They replace those of the same scale and data set that ``folder`` holds; all others are kept.

    Parameters
    ----------
    out
        Folder that ``calibrant papers run`` or ``calibrant study run`` wrote.
    folder
        Folder of collected results.
    add
        Whether to keep the runs of the same scale and data set too. Seeds of one method must have
        the same recipe. Of a run that is collected again, values at other places are kept: other
        parts, calibrators or metrics.
    """
    folder, scale = Path(folder), scale_of(out)
    folder.mkdir(parents=True, exist_ok=True)
    runs, measures = _finished(out, scale)
    rows = [{"run": key, "scale": scale, "record": record(run)} for key, run in runs.items()]
    others, held_measures = _others(folder, scale, runs, add=add)
    again = {_place_of(row) for row in measures}
    other_measures = [row for row in held_measures if _place_of(row) not in again]
    written = {
        RUNS: pa.Table.from_pylist([*others, *rows], RUN_SCHEMA),
        DERIVED: pa.Table.from_pylist([*other_measures, *measures], DERIVED_SCHEMA),
    }
    kept = {row["run"] for row in others} | runs.keys()
    for name, values in _by_file(_plain(read_all(out, keys=set(runs))), runs).items():
        held, both = folder / name, values
        if add and held.is_file():
            before = _plain(read_parquet(held, partial(_check, asked=VALUE_SCHEMA)))
            before = before.filter(pc.is_in(before["run"], pa.array(sorted(kept), TEXT)))
            places = [name for name in VALUE_SCHEMA.names if name != "value"]
            before = before.join(values.select(places), places, join_type="left anti")
            both = pa.concat_tables([before.select(values.column_names), values])
        written[name] = both.sort_by([(column, "ascending") for column in ORDER])
    for name, table in written.items():
        with replacing(folder / name) as temporary:
            _write(table, temporary)
    return {name: table.num_rows for name, table in written.items()}


def _write(table: pa.Table, path: Path) -> None:
    """Write a table: values in single precision, byte by byte, which takes a third of the room."""
    names = table.column_names
    if "value" in names:
        rounded = table["value"].cast(pa.float32(), safe=False).cast(pa.float64())
        table = table.set_column(names.index("value"), "value", rounded)
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in names if name != "value"],
        use_byte_stream_split=[name for name in names if name == "value"],
    )


def _finished(out: str | Path, scale: str) -> tuple[dict[str, Run], list[dict[str, Any]]]:
    """The finished runs of all papers by key, and the measures derived from them."""
    runs: dict[str, Run] = {}
    measures: list[dict[str, Any]] = []
    for paper in CALIBRATOR_LABELS:
        results = Results(paper_at(paper, scale), out)
        for kind in results.at.studies:
            asked = (results.finished(run) for run in results.at.runs(kind))
            runs.update({run.key: run for run in asked if run is not None})
        measures += [
            {"paper": paper, **found.measure(), "run": found.run.key}
            for found in record_cells(results)
        ]
    return runs, measures


def _plain(table: pa.Table) -> pa.Table:
    """A table whose strings are not encoded, so that others can be appended to it."""
    coded = pa.types.is_dictionary
    return table.cast(
        pa.schema([(f.name, f.type.value_type if coded(f.type) else f.type) for f in table.schema])
    )


def _by_file(values: pa.Table, runs: Mapping[str, Run]) -> dict[str, pa.Table]:
    """The values of each file.

    Runs with a tuned weight decay have files of their own: they are named like those without.
    """
    tuned = pa.array(sorted(key for key, run in runs.items() if WEIGHT_DECAY in run.recipe), TEXT)
    apart, found = pc.is_in(values["run"], tuned), {}
    for data in pc.unique(values["data"]).to_pylist():
        own = pc.equal(values["data"], data)
        for rows, ending in ((pc.invert(apart), ""), (apart, "-tuned")):
            some = values.filter(pc.and_(own, rows))
            if some.num_rows:
                found[file_of(data, ending)] = some
    return found


def file_of(data: str, ending: str = "") -> str:
    """The name of the file with the values of a data set.

    >>> file_of("cifar10"), file_of("features/cifar10/cifar10.npz", "-tuned")
    ('cifar10.parquet', 'features-cifar10-tuned.parquet')
    """
    return f"{shown_data(data).replace(' of ', '-')}{ending}.parquet"


def _others(
    folder: Path, scale: str, runs: Mapping[str, Run], *, add: bool
) -> tuple[list[Any], list[Any]]:
    """Runs and derived measures that a folder holds and that are kept beside the new runs.

    Those of other scales and other data sets; with ``add`` also those that answer another question.
    """
    if not is_collected(folder):
        return [], []
    data, questions = {run.data for run in runs.values()}, {_question(r) for r in runs.values()}
    kept = []
    for row in _read(folder / RUNS, RUN_SCHEMA):
        run = _run(row["record"], row["run"])
        again = _question(run) in questions if add else run.data in data
        if row["scale"] != scale or not again:
            kept.append(row)
    if add:
        same = [_run(row["record"], row["run"]) for row in kept if row["scale"] == scale]
        _check_recipes(runs.values(), same)
    keys = {row["run"] for row in kept} | (runs.keys() if add else set())
    held = folder / DERIVED
    measures = _read(held, DERIVED_SCHEMA) if held.is_file() else []
    return kept, [row for row in measures if row["run"] in keys]


def _place_of(measure: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a derived measure is the value of."""
    return tuple(measure[name] for name in DERIVED_SCHEMA.names if name != "value")


def _check_recipes(runs: Iterable[Run], held: Iterable[Run]) -> None:
    """Refuse runs that differ in more than the seed from others of their method, held already.

    What was recorded of the epochs does not matter: it changes no weights.
    """

    def plain(run: Run) -> Run:
        return replace(run, seed=0, telemetry=False, telemetry_samples=None)

    by_method = {_question(plain(run)): run for run in held}
    for run in runs:
        other = by_method.get(_question(plain(run)), run)
        if plain(other).key != plain(run).key:
            rule = "must have the recipe of the runs they are added to"
            advice = "Run them all again, and collect them without add."
            raise refuse("runs", rule, f"not so {run}", advice)


def record(run: Run) -> str:
    """Everything that determines a run, and its label, as JSON."""
    facts = {f.name: getattr(run, f.name) for f in fields(run)}
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in facts.items()}
    return json.dumps(plain, sort_keys=True)


# --- reading -----------------------------------------------------------------------------------


def _question(run: Run) -> tuple[object, ...]:
    """What a run was made to answer, however its recipe is written."""
    mixed, decay = run.recipe.get("mixup") or 0, run.recipe.get(WEIGHT_DECAY)
    return run.data, run.model, run.objective, mixed, decay, run.train_size, run.seed


@lru_cache(maxsize=8)
def _records(out: Path, scale: str) -> dict[str, Run]:
    """The collected runs of a scale by key."""
    found = {}
    for row in _read(out / RUNS, RUN_SCHEMA):
        if row["scale"] == scale:
            found[row["run"]] = _run(row["record"], row["run"])
    return found


@lru_cache(maxsize=8)
def _by_question(out: Path, scale: str) -> dict[tuple[object, ...], Run]:
    """The collected runs of a scale by what they answer; of several, the first."""
    found: dict[tuple[object, ...], Run] = {}
    for run in _records(out, scale).values():
        found.setdefault(_question(run), run)
    return found


@lru_cache(maxsize=8)
def _values_of(out: Path, scale: str) -> dict[tuple[str, str, str, str], float]:
    """Value by run, part, calibrator and metric.

    Runs that answer the same question differ in what was recorded and evaluated, not in what was
    learned: the values of all are found under the first.
    """
    first, runs = _by_question(out, scale), _records(out, scale)
    key_of = {key: first[_question(run)].key for key, run in runs.items()}
    names = {file_of(run.data, ending) for run in runs.values() for ending in ("", "-tuned")}
    found: dict[tuple[str, str, str, str], float] = {}
    for path in sorted(out / name for name in names if (out / name).is_file()):
        rows = read_parquet(path, partial(_check, asked=VALUE_SCHEMA))
        places = zip(
            texts_of(rows["run"], key_of),
            *(texts_of(rows[name]) for name in ("part", "calibrator", "metric")),
            strict=True,
        )
        found.update(zip(places, rows["value"].to_numpy().tolist(), strict=True))
    return found


def _run(text: str, key: str) -> Run:
    try:
        run = Run(**json.loads(text))
        sound = run.key == key
    except (TypeError, ValueError, RecursionError):
        sound = False
    if not sound:
        advice = "Collect the results again."
        raise refuse("runs.parquet", "must hold the records of its runs", f"not so {key}", advice)
    return run


def texts_of(column: pa.ChunkedArray, called: Mapping[str, str] | None = None) -> list[str]:
    """The texts of a column in which few repeat often: twenty times as fast as one by one.

    >>> texts_of(pa.chunked_array([["a", "b", "a"]]), {"b": "c"})
    ['a', 'c', 'a']

    Parameters
    ----------
    column
        Texts, encoded or not.
    called
        What to put in the place of some texts.
    """
    coded = column.combine_chunks()
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    texts: list[str] = coded.dictionary.to_pylist()
    texts = [called.get(text, text) for text in texts] if called else texts
    return [texts[code] for code in coded.indices.to_numpy().tolist()]


@lru_cache(maxsize=4)
def _measures(out: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The derived measures of each paper: run, metric, method, calibrator, part and value."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    if (out / DERIVED).is_file():
        rows = read_parquet(out / DERIVED, partial(_check, asked=DERIVED_SCHEMA))
        names = [field.name for field in DERIVED_SCHEMA if field.name != "value"]
        columns = (texts_of(rows[name]) for name in names)
        for paper, *labels in zip(*columns, rows["value"].to_numpy().tolist(), strict=True):
            found[paper].append(tuple(labels))
    return found


def _read(path: Path, asked: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a collected file that has these columns."""
    rows: list[dict[str, Any]] = read_parquet(path, partial(_check, asked=asked)).to_pylist()
    return rows


def _check(schema: pa.Schema, where: str, *, asked: pa.Schema) -> None:
    """Refuse a file without the columns asked for."""
    for field in asked:
        if field.name not in schema.names or schema.field(field.name).type != field.type:
            rule = f"must have the column {field.name!r} of type {field.type}"
            raise refuse(where, rule, f"it has {', '.join(schema.names)}", "Collect it again.")
