"""Parquet files measured in parallel: the same bits as in one process, whatever dies."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import calibrant
from calibrant import InputError, Predictions
from calibrant._core import arrays, processes
from calibrant._core.checks import FileNote
from calibrant.streaming import (
    Accumulator,
    LocalProcesses,
    Part,
    _executors,
    _parquet,
    accumulate_batches,
    accumulate_files,
    accumulate_parquet,
    in_this_process,
    parquet_files,
)
from calibrant.streaming._files import merge_states
from tests.command import call
from tests.conftest import draw

SIZES = (400, 37, 1000, 5)


def write_shards(folder: Path, **belonging: Any) -> Predictions:
    """Shards of different sizes, and all their rows in memory."""
    z, labels = draw(sum(SIZES), 4)
    every = Predictions(logits=z, labels=labels, **belonging)
    start = 0
    for number, size in enumerate(SIZES):
        every.take(np.arange(start, start + size)).save(folder / f"part-{number}.parquet")
        start += size
    return every


@pytest.fixture
def groups() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    n = sum(SIZES)
    return {
        "groups": {"site": np.where(rng.random(n) < 0.3, "north", "south")},
        "clusters": rng.integers(0, 120, n),
    }


def files_in(folder: Path) -> list[str]:
    return parquet_files([str(folder)])


def states(found: Any) -> dict[str, bytes]:
    return {name: total.state() for name, total in found.groups.items()}


def in_memory(every: Predictions) -> bytes:
    total = Accumulator(every.num_classes)
    total.update(every)
    return total.state()


class Given:
    """An executor that takes the chunks in a given order, each in pieces of its own."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def gather(self, chunks: Any, plan: Any, report: Any) -> Any:
        from calibrant.streaming._files import Merged, measure_chunk

        found = Merged()
        parts = [measure_chunk(chunks[k], plan) for k in self.order]
        for part, _ in parts:
            report(part)
        # A tree: the first two together, then the rest one by one onto that.
        found.add_states(merge_states(*(states for _, states in parts[:2])))
        for _, more in parts[2:]:
            found.add_states(more)
        return found


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_any_split_and_order_gives_the_same_bits(
    tmp_path: Path, groups: dict[str, Any], order: list[int]
) -> None:
    every = write_shards(tmp_path, **groups)
    whole = in_this_process(files_in(tmp_path))
    assert states(whole) == {"": in_memory(every)}
    assert states(accumulate_files(files_in(tmp_path), executor=Given(order))) == states(whole)
    by = in_this_process(files_in(tmp_path), by="site")
    south = every.take(every.groups["site"] == "south")
    assert list(by.groups) == ["north", "south"]
    assert by.groups["south"].state() == in_memory(south)
    again = accumulate_files(files_in(tmp_path), executor=Given(order), by="site")
    assert states(again) == states(by)


def test_processes_give_the_same_bits(tmp_path: Path, groups: dict[str, Any]) -> None:
    write_shards(tmp_path, **groups)
    files, seen = files_in(tmp_path), []
    found = accumulate_files(
        files, executor=LocalProcesses(2), progress=lambda part, total: seen.append((part, total))
    )
    assert states(found) == states(in_this_process(files))
    assert [part.files for part, _ in seen] == [1, 2, 3, 4]
    assert seen[-1] == (Part(files=4, rows=sum(SIZES)), 4)


def test_arrow_keeps_to_the_threads_of_a_worker() -> None:
    """Else a worker of one thread decodes on all cores, beside the workers there."""
    with processes.crew() as workers:
        prepare = partial(_executors.use_threads, 1)
        workers.append(processes.Worker("calibrant.streaming._preload", prepare))
        workers[0].give("count", pa.cpu_count)
        processes.answered(workers)
        assert workers[0].answer() == 1


def test_a_killed_worker_costs_its_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    files = files_in(tmp_path)
    given: list[Any] = []
    usual = processes.Worker.give

    def give(self: Any, task: Any, function: Any, *arguments: Any) -> None:
        if not given:  # the first worker is dead before it gets its first task
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
        given.append(task[0])
        usual(self, task, function, *arguments)

    monkeypatch.setattr(processes.Worker, "give", give)
    found = accumulate_files(files, executor=LocalProcesses(2))
    assert states(found) == states(in_this_process(files))
    assert len(given) == len(files) + 1
    assert given.count(given[0]) == 2


def test_a_worker_that_always_dies_gives_bad_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    monkeypatch.setattr(processes.Worker, "answer", die)
    with pytest.raises(InputError, match=r"part-\d.parquet: the process that read it died"):
        accumulate_files(files_in(tmp_path), executor=LocalProcesses(1))


def die(self: processes.Worker) -> None:
    raise processes.WorkerDied(started=True)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """One file cut short, one of another kind, one with a label out of range."""
    write_shards(tmp_path)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "part-2.parquet").read_bytes()[:-50])
    Predictions(logits=np.zeros((3, 5)), labels=[0, 1, 2]).save(tmp_path / "other.parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "part-1.parquet")
    wrong = pa.array(np.where(np.arange(37) == 30, 9, 0))
    table = table.set_column(table.column_names.index("label"), "label", wrong)
    pq.write_table(table, tmp_path / "wrong.parquet")
    return tmp_path


@pytest.mark.parametrize("executor", [None, Given([6, 5, 4, 3, 2, 1, 0])])
def test_bad_files_are_counted_and_count_for_nothing(damaged: Path, executor: Any) -> None:
    files = files_in(damaged)
    good = [file for file in files if "part-" in file]
    run = in_this_process if executor is None else partial(accumulate_files, executor=executor)
    found = run(files, skip_bad=True)
    assert states(found) == states(in_this_process(good))
    assert [Path(file).stem for file in found.bad] == ["cut", "other", "wrong"]
    assert "columns, types and class names" in found.bad[str(damaged / "other.parquet")]
    assert "counted from row" in found.bad[str(damaged / "wrong.parquet")]


@pytest.mark.parametrize("name", ["cut", "other", "wrong"])
@pytest.mark.parametrize("executor", [None, Given([0, 1])])
def test_a_bad_file_is_named(damaged: Path, name: str, executor: Any) -> None:
    files = [str(damaged / "part-0.parquet"), str(damaged / f"{name}.parquet")]
    run = in_this_process if executor is None else partial(accumulate_files, executor=executor)
    with pytest.raises(InputError, match=name):
        run(files)


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"not a table")
    with pytest.raises(InputError, match="must be Parquet files with predictions"):
        in_this_process([str(tmp_path / "x.parquet")], skip_bad=True)


def test_a_file_without_rows_adds_nothing(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_shards(tmp_path)
    before = states(in_this_process(files_in(tmp_path)))
    pq.write_table(pq.read_table(tmp_path / "part-0.parquet")[:0], tmp_path / "empty.parquet")
    assert states(in_this_process(files_in(tmp_path))) == before
    order = [4, 3, 2, 1, 0]
    assert states(accumulate_files(files_in(tmp_path), executor=Given(order))) == before


def test_too_many_groups(tmp_path: Path) -> None:
    z, labels = draw(300, 3)
    many = {"id": np.arange(300)}
    Predictions(logits=z, labels=labels, groups=many).save(tmp_path / "p.parquet")
    with pytest.raises(InputError, match="at most 256 groups"):
        in_this_process(files_in(tmp_path), by="id")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_cannot_be_added_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """One of many batches, given twice, between good files; the batch after it is read already."""
    monkeypatch.setattr(arrays, "num_threads", lambda: threads)
    monkeypatch.setattr(_parquet, "BATCH_ELEMENTS", 1)
    monkeypatch.setattr(_parquet, "LEAST_BATCH", 100)
    z, labels = draw(700, 3)
    for name, ids in (("a", labels), ("b", np.arange(700)), ("c", labels + 1)):
        given = {"id": ids}
        Predictions(logits=z, labels=labels, groups=given).save(tmp_path / f"{name}.parquet")
    a, b, c = files_in(tmp_path)
    rows: list[int] = []
    found = in_this_process(
        [b, a, b, c, a], by="id", skip_bad=True, progress=lambda done, _: rows.append(done)
    )
    assert states(found) == states(in_this_process([a, c, a], by="id"))
    assert list(found.bad) == [b]
    assert "at most 256 groups" in found.bad[b]
    assert sum(total.num_samples for total in found.groups.values()) == 2100
    assert rows == sorted(rows)
    with pytest.raises(InputError, match="at most 256 groups"):
        in_this_process([a, b, c], by="id")


def test_groups_must_exist(tmp_path: Path) -> None:
    write_shards(tmp_path)
    files = files_in(tmp_path)
    for run in (in_this_process, partial(accumulate_files, executor=LocalProcesses(1))):
        for skip_bad in (False, True):
            with pytest.raises(InputError, match=r"^by must name one of the groups; got 'site'"):
                run(files, by="site", skip_bad=skip_bad)


# --- columns of any name ---

NAMES = ["cat", "dog", "owl"]
COLUMNS = {"label_column": "truth", "prob_columns": "p_*", "group_columns": ["site"]}


@pytest.fixture
def own_columns(tmp_path: Path) -> Path:
    """Files as other tools write them: names for labels, and columns that mean nothing here."""
    import pyarrow.parquet as pq

    for number in range(3):
        z, labels = draw(200 + number, 3, seed=number)
        probs = Predictions(logits=z, labels=labels).probs
        table = {
            "id": np.arange(len(z)),
            "text": [f"sample {k}" for k in range(len(z))],
            "site": np.where(labels == z.argmax(1), "north", "south"),
            "truth": np.array(NAMES)[labels],
            **{f"p_{name}": probs[:, k] for k, name in enumerate(NAMES)},
            "taken": pa.array([None] * len(z), pa.timestamp("us")),
        }
        pq.write_table(pa.table(table), tmp_path / f"part-{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("executor", [None, Given([2, 1, 0]), LocalProcesses(1)])
def test_columns_of_any_name(own_columns: Path, executor: Any) -> None:
    files = files_in(own_columns)
    run = in_this_process if executor is None else partial(accumulate_files, executor=executor)
    with pytest.warns(FileNote, match=r"part-0\.parquet: not used: id, text, taken\."):
        found = run(files, by="site", **COLUMNS)
    with pytest.warns(FileNote):
        parts = [calibrant.load(file, **COLUMNS) for file in files]
    assert set(found.groups) == {"north", "south"}
    for site, total in found.groups.items():
        want = Accumulator(3)
        for part in parts:
            want.update(part.take(part.groups["site"] == site))
        assert total.result() == want.result()
    with pytest.raises(InputError, match="unknown column"):
        run(files, strict=True, **COLUMNS)


def test_batches_with_columns_of_any_name(own_columns: Path) -> None:
    import pyarrow.parquet as pq

    file = own_columns / "part-1.parquet"
    total = accumulate_batches(pq.read_table(file).to_batches(max_chunksize=50), **COLUMNS)
    with pytest.warns(FileNote):
        want = accumulate_parquet([file], **COLUMNS)
    assert total.result() == want.result()
    with pytest.raises(InputError, match="label_column=…"):
        accumulate_batches([pq.read_table(file)], prob_columns="p_*")


def test_the_command_reads_columns_of_any_name(own_columns: Path) -> None:
    columns = ["--label-column", "truth", "--prob-columns", "p_*", "--group-column", "site"]
    line = ["measure", own_columns, "--stream", "--replicates", 50, "--by", "site"]
    done = call(*line, *columns)
    assert done.returncode == 0
    assert "calibrant: note: part-0.parquet: not used: id, text, taken." in done.stderr
    assert "north" in done.stdout
    bare = call(*line)
    assert bare.returncode == 2
    assert "--label-column" in bare.stderr
    other = call(*line, *columns, "--ignore-index", 255)
    assert "--ignore-index cannot be used with --stream" in other.stderr


# --- the command ---


def output(*arguments: object) -> str:
    done = call(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_has_intervals_groups_and_executors(
    tmp_path: Path, groups: dict[str, Any]
) -> None:
    every = write_shards(tmp_path, **groups)
    line = [
        "measure",
        str(tmp_path / "part-*.parquet"),
        "--stream",
        "--json",
        "--replicates",
        "100",
    ]
    plain = json.loads(output(*line))
    parallel = json.loads(output(*line, "--executor", "local", "--workers", "2"))
    assert parallel == plain
    want = calibrant.measure(every, replicates=100)
    assert plain["num_samples"] == sum(SIZES)
    for name in ("ece", "nll", "auroc", "accuracy"):
        got = plain["metrics"][name]
        assert got["value"] == pytest.approx(want[name], abs=1e-3)
        assert got["low"] <= got["value"] <= got["high"] or name == "ece"
    assert plain["metrics"]["classwise_ece"]["low"] is None
    assert "No interval in a stream: classwise ECE." in plain["notes"]
    assert "120 clusters" in plain["assumed"]
    by = json.loads(output(*line, "--by", "site"))
    assert set(by["groups"]) == {"north", "south"}
    both = calibrant.measure(every, by="site", replicates=100)
    assert by["worst"]["value"] == pytest.approx(both.simultaneous[both.worst].value, abs=1e-6)
    assert by["differ"]["p_value"] == pytest.approx(both.differ.p_value, abs=0.15)


def test_the_recipe_for_spark() -> None:
    """The code of the page, with Arrow batches as mapInArrow hands them out."""
    import pyarrow as pa

    from tests.test_readme import blocks

    recipe = next(code for code in blocks("docs/cluster.md", "python") if "mapInArrow" in code)
    names: dict[str, Any] = {}
    exec(recipe, names)
    z, labels = draw(500, 3)
    table = pa.table({"label": labels, **{f"logit_{k}": z[:, k] for k in range(3)}})
    partitions = [table[:200], table[:0], table[200:]]
    rows = [
        row
        for part in partitions
        for state in names["states"](iter(part.to_batches(max_chunksize=64)))
        for row in state.to_pylist()
    ]
    assert len(rows) == 2
    total = Accumulator(3)
    total.update(Predictions(logits=z, labels=labels))
    assert names["measured"](rows) == total.result()


def test_progress_has_lines_off_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.cli._common.Heartbeat.EVERY", 1e-4)
    write_shards(tmp_path)
    done = call("measure", tmp_path, "--stream", "--no-intervals", "--workers", 1)
    lines = done.stderr.splitlines()
    line = re.compile(r"calibrant: measuring( …|, [0-9,]+ rows: [1-4] of 4 files)")
    assert lines
    assert [text for text in lines if not line.fullmatch(text)] == []


def test_options_of_streams_are_checked(tmp_path: Path) -> None:
    write_shards(tmp_path)
    one, ray = tmp_path / "part-0.parquet", ["--stream", "--executor", "ray"]
    for line, message in (
        (["--workers", 2], "--workers needs --stream"),
        (["--skip-bad"], "needs --stream"),
        (["--stream", "--executor", "slurm"], "--executor must be"),
        (["--stream", "--workers", 0], "--workers must be"),
        ([*ray, "--workers", 2], "only valid with --executor local"),
        (["--stream", "--address", "10.0.0.1:6379"], "only valid with --executor ray"),
        ([*ray, "--address", "nowhere"], "address must be HOST"),
        (["--stream", "--metrics", "kde_ece"], "default metrics in a stream"),
        (["--stream", "--level", "2"], "level must lie"),
        (["--stream", "--threshold", "0.3"], "cannot be used with --stream"),
    ):
        done = call("measure", one, *line)
        assert done.returncode == 2, line
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_stream_of_another_format_says_what_to_do(tmp_path: Path) -> None:
    z, labels = draw(20, 3)
    Predictions(logits=z, labels=labels).save(tmp_path / "p.npz")
    done = call("measure", tmp_path / "p.npz", "--stream")
    assert done.returncode == 2
    said = "PATHS must be Parquet files with --stream; got p.npz. Leave --stream out for this file."
    assert said in done.stderr


def test_skipped_files_are_in_the_output(damaged: Path) -> None:
    done = call("measure", damaged, "--stream", "--no-intervals", "--skip-bad")
    assert done.returncode == 0
    assert "Left out: 3 of 7 files (cut.parquet cannot be read as parquet" in done.stdout
