"""Result files: every bit is checked; what is damaged is named, left out and repeated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import Predictions
from calibrant._core.checks import CalibrationWarning, InputError
from calibrant.results import Store, read_all
from calibrant.results._cache import CACHE
from calibrant.results._files import COLUMNS, read_rows, read_sealed, rows_file, write_sealed
from calibrant.study import Local, Study, run_study, status
from calibrant.study._execute import described
from tests.command import call
from tests.processes import PATIENCE, begin
from tests.test_study import LOCAL, TINY, row, tiny, toml, values

FLIPS = 1500


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_study(one(), folder, executor=Local(1, 1))
    return folder


def one(**changes: Any) -> Study:
    return tiny(seeds=1, objectives=["cross_entropy"], **changes)


def test_no_flipped_bit_changes_a_value(finished: Path, tmp_path: Path) -> None:
    """Over a real result file: it is damaged, for tables, for the status and for the next run."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (path,) = folder.glob("results/*.parquet")
    whole, store, rng = path.read_bytes(), Store(folder), np.random.default_rng(0)
    for bit in rng.choice(8 * len(whole), FLIPS, replace=False):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        assert store.facts(path.stem) is None
        assert store.is_damaged(path.stem)
        with pytest.raises(InputError, match=f"no finished runs, but 1 damaged file .{path.name}"):
            read_all(folder)
    assert status(one(), folder).damaged == (path.name,)
    assert run_study(one(), folder, executor=Local(1, 1)).count("done") == 1
    assert path.read_bytes() != bytes(changed)
    assert values(folder) == values(finished)


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_cut_file_is_damaged(finished: Path, tmp_path: Path, size: int) -> None:
    store = Store(tmp_path)
    (path,) = finished.glob("results/*.parquet")
    copy = store.result_path(path.stem)
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes()[:size])
    assert store.is_damaged(path.stem)


def test_a_whole_file_is_an_ordinary_parquet_file(finished: Path) -> None:
    import pyarrow.parquet as pq

    (path,) = finished.glob("results/*.parquet")
    assert pq.read_table(path).to_pylist() == read_all(finished).to_pylist()


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_kept_files_heal(finished: Path, tmp_path: Path, damage: bytes | None) -> None:
    """Weights, checkpoint and logits: named, and made again where they are needed."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    run = one().runs[0]
    kept = Store(folder).run_folder(run.key)
    names = ("weights.pt", "checkpoint.pt", "test.npz")
    before = Predictions.load(kept / "test.npz").logits
    for name in names:
        content = (kept / name).read_bytes()
        (kept / name).write_bytes(content[: len(content) // 2] if damage is None else damage)
    Store(folder).result_path(run.key).unlink()
    (kept / "shift-signals-3.npz").unlink()  # needs the weights
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        assert run_study(one(), folder, executor=Local(1, 1)).count("done") == 1
    said = " ".join(str(warning.message) for warning in caught)
    assert all(f"{name} is damaged and will be recreated." in said for name in names[1:])
    np.testing.assert_array_equal(Predictions.load(kept / "test.npz").logits, before)
    assert values(folder) == values(finished)


@pytest.mark.slow
def test_damaged_weights_alone(finished: Path, tmp_path: Path) -> None:
    """A new shift needs them; the checkpoint of the last epoch still has them."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    path = Store(folder).run_folder(one().runs[0].key) / "weights.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # PyTorch itself loads this without a word
    path.write_bytes(content)
    more = one(shifts=["signals/3", "signals/4"])
    with pytest.warns(CalibrationWarning, match=r"weights\.pt is damaged and will be recreated"):
        assert run_study(more, folder, executor=Local(1, 1)).count("done") == 1
    run_study(more, tmp_path / "fresh", executor=Local(1, 1))
    assert values(folder) == values(tmp_path / "fresh")


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "flipped", "gone"])
def test_shared_data_heal(finished: Path, tmp_path: Path, damage: str) -> None:
    from calibrant.data import load
    from calibrant.study._sharing import share, shared

    run = one().runs[0]
    shutil.copytree(finished / "shared", tmp_path / "shared")
    for path in sorted((tmp_path / "shared").glob("*/*")):
        content = path.read_bytes()
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        changed = {
            "truncated": content[: len(content) // 2],
            "empty": b"",
            "garbage": b"garbage",
            "flipped": flipped,
        }
        path.unlink()
        if damage in changed:
            path.write_bytes(changed[damage])
        (path.parent / ".x_train-1-00.tmp").write_bytes(b"left")
        folder = share(run, tmp_path / "shared")
        shared.cache_clear()
        assert shared(folder).hash == load(run.data, **run.data_options).hash
        assert path.read_bytes() == content
        assert not list((tmp_path / "shared").rglob("*.tmp"))


def test_what_stopped_processes_left_is_removed(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    key = one().runs[0].key
    left = [folder / "runs" / key / ".checkpoint-1-00.tmp", folder / "results" / f".{key}-1-00.tmp"]
    (folder / "failed").mkdir()
    left.append(folder / "failed" / f".{key}-1-00.tmp")
    for path in left:
        path.write_bytes(b"half a file")
    with Store(folder).claim(key):
        Store(folder).sweep()
        assert all(path.exists() for path in left)  # somebody works on it
    run_study(one(), folder, executor=Local(1, 1))
    assert not any(path.exists() for path in left)


# --- labels -----------------------------------------------------------------------------------


def labelled(label: str) -> dict[str, Any]:
    return {"objectives": [{"objective": "cross_entropy", "label": label}, "focal"], "seeds": 3}


@pytest.mark.slow
def test_two_drivers_with_other_labels(tmp_path: Path) -> None:
    """Each prints its own table; the folder ends with the labels of one of them, not a mixture."""
    out = tmp_path / "out"
    both = []
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
        path = toml(tmp_path / name, **labelled(name))
        both.append(begin("study", "run", path, "--out", out, "--workers", 1, "--threads", 1))
    for name, other, process in zip(("mine", "yours"), ("yours", "mine"), both, strict=True):
        said, error = process.communicate(timeout=PATIENCE)
        assert (process.returncode, error) == (0, "")
        assert "6 done" in said
        assert name in said
        assert other not in said
    found = {r["objective"] for r in read_all(out).to_pylist()}
    assert found in ({"mine", "focal"}, {"yours", "focal"})


@pytest.mark.slow
def test_a_new_label_trains_and_evaluates_nothing(tmp_path: Path) -> None:
    run_study(tiny(**labelled("mine")), tmp_path, executor=LOCAL)
    before = values(tmp_path)
    study = tiny(**labelled("yours"))
    assert {r["objective"] for r in read_all(tmp_path, labels=study.labels).to_pylist()} == {
        "yours",
        "focal",
    }

    class Never:
        def work(self, *_: Any) -> Any:
            raise AssertionError("nothing was missing")

    assert run_study(study, tmp_path, executor=Never()).count("done") == 6
    renamed = [tuple("mine" if v == "yours" else v for v in r) for r in values(tmp_path)]
    assert sorted(renamed) == before


# --- options and scale ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"), [("--workers", "0"), ("--threads", "-3"), ("--workers", "-1")]
)
def test_bad_numbers_of_workers(tmp_path: Path, option: str, value: str) -> None:
    done = call("study", "run", toml(tmp_path), "--out", tmp_path / "out", option, value)
    assert done.returncode == 2
    assert done.stderr.startswith(f"calibrant: {option} must be a whole number from 1 to ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="workers must be"):
        Local(workers=0)


@pytest.mark.slow
def test_two_thousand_runs(tmp_path: Path) -> None:
    """What is finished is found without PyTorch or pandas; the time is that of one core."""
    gammas = [n / 4 for n in range(1, 21)]
    objectives = [{"objective": "focal:gamma={g}", "g": gammas}]
    path = toml(tmp_path, objectives=objectives, seeds=100)
    study, store = Study.load(path, training=False), Store(tmp_path / "out")
    facts = {"evaluation": described(study.evaluation), "train_seconds": 1.0, "seconds": 2.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calibrant._core.files._flush", lambda _: None)
        for number, run in enumerate(study.runs):
            rows = [
                row(
                    run.name,
                    run.seed,
                    (number + 1) / 4000,
                    run=run.key,
                    part=part,
                    calibrator=label,
                    metric=metric,
                )
                for part in ("test", "signals/3")
                for label in ("none", "TS")
                for metric in TINY["metrics"]
            ]
            store.write(run.key, rows, {**facts, "label": run.name})
    code = (
        "import resource, sys\n"
        "from calibrant.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in ('torch', 'pandas') if name in sys.modules])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)\n"
    )
    # The first run reads every file and makes the cache, as the run that ends a study does.
    for what, limit in (("status", 2), ("run", 8), ("run", 2)):
        line = [sys.executable, "-c", code, "study", what, str(path), "--out", str(store.folder)]
        assert min(seconds_of(line, limit)) < limit


def seconds_of(line: list[str], limit: float) -> Iterator[float]:
    """Seconds of one core, until they are few enough: other work on the machine costs some too."""
    for _ in range(4):
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=PATIENCE)
        *said, loaded, seconds = done.stdout.splitlines()
        assert said[0].startswith("2000 done, 0 running, 0 failed, 0 missing")
        assert loaded == "[]"
        yield float(seconds)
        if float(seconds) < limit:
            return


# --- the cache --------------------------------------------------------------------------------


KEYS = [f"k{number}" for number in range(60)]


def filled(folder: Path) -> Store:
    store = Store(folder)
    for number in range(len(KEYS)):
        entry = dict.fromkeys(COLUMNS, "x") | {"run": f"k{number}", "seed": 0, "value": number / 7}
        store.write(f"k{number}", [entry, {**entry, "metric": "y"}], {"label": "x"})
    return store


def values_by_run(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for entry in read_all(folder).to_pylist():
        found.setdefault(entry["run"], []).append(entry["value"])
    return found


def test_the_cache_gives_what_the_files_hold(tmp_path: Path) -> None:
    store = filled(tmp_path)
    first = values_by_run(tmp_path)
    assert (tmp_path / CACHE).exists()
    assert values_by_run(tmp_path) == first
    entry = dict.fromkeys(COLUMNS, "x") | {"run": "k3", "seed": 0, "value": 42.0}
    store.write("k3", [entry], {"label": "x"})
    assert values_by_run(tmp_path) == {**first, "k3": [42.0]}
    store.result_path("k4").unlink()
    assert "k4" not in values_by_run(tmp_path)
    assert read_all(tmp_path, keys=["k5"]).num_rows == 2
    assert values_by_run(tmp_path)["k5"] == first["k5"]


def test_a_damaged_result_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    store = filled(tmp_path)
    first = values_by_run(tmp_path)
    path = store.result_path("k7")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.warns(CalibrationWarning, match="k7.parquet"):
        found = values_by_run(tmp_path)
    assert found == {key: value for key, value in first.items() if key != "k7"}


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    store = filled(tmp_path)
    facts = store.facts_of_all(KEYS)
    first = values_by_run(tmp_path)
    cache = tmp_path / CACHE
    good = cache.read_bytes()
    for content in (b"", b"garbage", good[:-5], bytes([good[0] ^ 1]) + good[1:]):
        cache.write_bytes(content)
        assert values_by_run(tmp_path) == first
    # Sealed, but its spans are not ones of its table.
    rows = read_rows(cache, read_sealed(cache))
    shapes = ('{"k1": 3}', '{"k1": ["a", "b", 1]}', '{"k1": ["a", 1e400, 1, {}]}', "[" * 10**5)
    for runs in ("[]", "{}", *shapes, "nonsense"):
        write_sealed(cache, rows_file(rows, {"runs": runs}))
        assert store.facts_of_all(KEYS) == facts
        assert values_by_run(tmp_path) == first


def test_the_cache_knows_the_facts_of_runs(tmp_path: Path, monkeypatch) -> None:
    store = filled(tmp_path)
    expected = {key: store.facts(key) for key in KEYS}
    assert store.facts_of_all(KEYS) == expected
    read_all(tmp_path)
    with monkeypatch.context() as patched:  # no file of a run is parsed again
        patched.setattr("calibrant.results._store.read_facts", None)
        assert store.facts_of_all(KEYS) == expected
    entry = dict.fromkeys(COLUMNS, "x") | {"run": "k3", "seed": 0, "value": 1.0}
    store.write("k3", [entry], {"label": "new"})
    content = bytearray(store.result_path("k5").read_bytes())
    content[9] ^= 1
    store.result_path("k5").write_bytes(content)
    store.result_path("k6").unlink()
    changed = {"k3": {"label": "new"}, "k5": None, "k6": None}
    assert store.facts_of_all(KEYS) == {**expected, **changed}
    # Sealed, but with facts of another form.
    cache = tmp_path / CACHE
    spans = {key: (read_sealed(store.result_path(key)).digest, 0, 2, [3]) for key in ("k1", "k2")}
    rows = read_rows(cache, read_sealed(cache))
    write_sealed(cache, rows_file(rows, {"runs": json.dumps(spans)}))
    assert store.facts_of_all(KEYS) == {**expected, **changed}
