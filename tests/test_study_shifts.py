"""Shifted test sets are loaded once for all runs of a process, in limited memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.data import load, load_shift
from calibrant.results import Store, read_all
from calibrant.study import Study, _records, _shifts
from calibrant.study._execute import execute, shifted
from calibrant.study._shifts import Kept, size_of

DATA = {"name": "signals", "train_size": 60, "test_size": 30}
BYTES = 100


def study(shifts: list[str]) -> Study:
    return Study.parse(
        {
            "data": DATA,
            "models": {"name": "cnn1d", "width": 4},
            "recipe": {"name": "quick", "epochs": 1},
            "calibration": 0.5,
            "seeds": 2,
            "shifts": shifts,
            "objectives": ["cross_entropy"],
            "calibrators": ["none"],
            "metrics": ["accuracy", "nll"],
        }
    )


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the shifts that are loaded; nothing is kept from other tests."""
    seen: list[str] = []

    def counted(name: str, **options: Any) -> Any:
        seen.append(Path(name).name)
        return load_shift(name, **options)

    monkeypatch.setattr(_shifts, "load_shift", counted)
    monkeypatch.setattr(_shifts, "KEPT", Kept(lambda: 1 << 30))
    return seen


def test_many_files_are_read_once(
    tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And hashed once; the results are those of reading them for every run."""
    digests: list[Path] = []
    whole = _records.hashlib.file_digest  # type: ignore[attr-defined]

    def counted(file: Any, name: str) -> Any:
        digests.append(Path(file.name))
        return whole(file, name)

    monkeypatch.setattr(_records.hashlib, "file_digest", counted)  # type: ignore[attr-defined]
    data = load("signals", train_size=60, test_size=30)
    paths = [tmp_path / f"{number}.npz" for number in range(70)]
    for number, path in enumerate(paths):
        np.savez(path, x_test=data.x_test[:5] + np.float32(number / 50), y_test=data.y_test[:5])
    asked = study([str(path) for path in paths])
    found = []
    for place, limit in (("kept", 1 << 30), ("not", 0)):
        loads.clear()
        monkeypatch.setattr(_shifts, "KEPT", Kept(lambda limit=limit: limit))
        store = Store(tmp_path / place)
        store.prepare([run.key for run in asked.runs])
        for run in asked.runs:
            assert execute(run, asked.evaluation, store, data)
        times = 1 if limit else len(asked.runs)
        assert sorted(loads) == sorted(times * [path.name for path in paths])
        found.append(sorted(map(str, read_all(store.folder).to_pylist())))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 71 * 2
    assert sorted(digests) == sorted(paths)


def test_generated_corruptions_are_made_once(
    loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    corrupt = _shifts.corrupt
    monkeypatch.setattr(_shifts, "corrupt", lambda *given: made.append(given) or corrupt(*given))
    images = load("digits")
    runs = study([]).runs
    first, second = (shifted("generated/fog/3", run, images)[0] for run in runs[:2])
    assert first is second
    shifted("generated/fog/4", runs[0], images)
    other = load("digits", test_size=20)
    assert len(shifted("generated/fog/3", runs[0], other)[0]) == 20
    assert len(made) == 3
    assert not loads


def test_options_make_another_shift(loads: list[str]) -> None:
    run = study([]).runs[0]
    data = load("signals", train_size=60, test_size=30)
    assert len(shifted("{data}/3", run, data)[1]) == 30
    assert len(shifted("signals/3", run, data)[1]) == 30
    assert loads == ["3"]
    larger = Study.parse({"data": "signals", "models": "cnn1d", "objectives": "focal"}).runs[0]
    assert len(shifted("signals/3", larger, data)[1]) > 30
    assert loads == ["3", "3"]


def use(kept: Kept, name: str, run: str, size: int = BYTES) -> bool:
    """Whether something was kept."""
    called: list[str] = []

    def make() -> tuple[Any, Any]:
        called.append(name)
        return np.zeros(size - 8, np.uint8), np.zeros(1, np.int64)

    samples = kept.get(name, run, make)
    assert size_of(samples) == size
    return not called


def test_the_first_stay_if_not_all_fit() -> None:
    kept = Kept(lambda: 3 * BYTES)
    for run in ("1", "2", "3"):
        hits = [use(kept, name, run) for name in "abcde"]
        assert hits == [run > "1"] * 3 + [False] * 2
        assert kept.size == 3 * BYTES


def test_what_a_run_does_not_use_makes_room() -> None:
    kept = Kept(lambda: 3 * BYTES)
    assert [use(kept, name, "1") for name in "abc"] == [False] * 3
    assert [use(kept, name, "2") for name in "bx"] == [True, False]  # a was used first
    assert [use(kept, name, "3") for name in "cbx"] == [True] * 3
    assert not use(kept, "large", "4", 4 * BYTES)  # makes no room in vain
    assert [use(kept, name, "5") for name in "cbx"] == [True] * 3
    assert not use(kept, "y", "6", 2 * BYTES)
    assert kept.size == 3 * BYTES
    assert use(kept, "x", "7")


def test_the_limit_is_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shifts, "num_threads", lambda: 8)
    for available, most in ((0, 0), (32 << 30, 1 << 30), (1 << 50, _shifts.MOST_BYTES)):
        monkeypatch.setattr(_shifts, "available_memory", lambda available=available: available)
        assert _shifts.share_of_memory() == most


def test_size_of_files() -> None:
    """Samples that are image files take what their names do."""
    y = np.zeros(10, np.int64)
    assert size_of((list("abcdefghij"), y)) == 10 * _shifts.FILE_BYTES + y.nbytes
