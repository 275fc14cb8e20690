"""Accumulators: equal to memory, the same bits in any order, memory that does not grow."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant import InputError, Predictions, metrics
from calibrant._core import arrays
from calibrant.streaming import Accumulator, _counts, accumulate_parquet
from calibrant.streaming._counts import exact_sum
from tests.conftest import CASES, draw

PANEL = metrics.default_metrics("panel")

EXACT = (
    "accuracy",
    "mean_confidence",
    "mean_entropy",
    "nll",
    "brier",
    "ece",
    "mce",
    "overconfidence_error",
    "underconfidence_error",
    "classwise_ece",
)
NEAR = (
    "adaptive_ece",
    "debiased_ece",
    "smooth_ece",
    "auroc",
    "aupr_error",
    "fpr95",
    "aurc",
    "eaurc",
)


def accumulated(z: np.ndarray, labels: np.ndarray, **options: object) -> Accumulator:
    total = Accumulator(z.shape[1], **options)
    total.update(logits=z, labels=labels)
    return total


def test_the_whole_panel_is_there() -> None:
    assert set(EXACT) | set(NEAR) == set(PANEL)
    assert set(accumulated(*CASES["mixed signs"]).result()) == set(PANEL)


@pytest.mark.parametrize("name", EXACT)
def test_equals_memory(name: str, case: tuple[np.ndarray, np.ndarray]) -> None:
    z, labels = case
    p = Predictions(logits=z, labels=labels)
    for bins in (15, 10):
        binned = name in ("ece", "mce", "classwise_ece") or name.endswith("confidence_error")
        want = metrics.METRICS[name].function(p, **({"bins": bins} if binned else {}))
        got = accumulated(z, labels, bins=bins).result()[name]
        assert got == pytest.approx(want, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_ece_options(norm: float) -> None:
    z, labels = CASES["mixed signs"]
    p, total = Predictions(logits=z, labels=labels), accumulated(z, labels)
    want = metrics.ece(p, norm=norm)
    assert total.result(norm=norm)["ece"] == pytest.approx(want, rel=1e-9)
    want = metrics.ece(p, binning="mass", norm=norm)
    got = total.result(norm=norm, binning="mass")["ece"]
    assert got == pytest.approx(want, abs=0.02)
    assert abs(got - want) <= total.error_bounds(norm=norm, binning="mass")["ece"]


@pytest.mark.parametrize("name", NEAR)
def test_ranking_within_its_bound(name: str) -> None:
    for spread in (1.5, 8.0, 40.0):
        z, labels = draw(30_000, 10, spread=spread, temperature=2)
        p, total = Predictions(logits=z, labels=labels), accumulated(z, labels)
        want, got = metrics.METRICS[name].function(p), total.result()[name]
        bound = total.error_bounds()[name]
        assert abs(got - want) <= bound
        assert bound < 0.02
        assert abs(got - want) < 2e-3


BINNED = {
    "ece",
    "mce",
    "classwise_ece",
    "adaptive_ece",
    "debiased_ece",
    "overconfidence_error",
    "underconfidence_error",
}


def check_bounds(p: Predictions, *, bins: int = 15, **options: Any) -> None:
    """Every metric of the stream has a bound, and it holds."""
    total = Accumulator(p.num_classes, bins=bins)
    total.update(p)
    values, bounds = total.result(**options), total.error_bounds(**options)
    assert set(values) == set(bounds) == set(PANEL)
    for name, got in values.items():
        more = {"bins": bins} if name in BINNED else {}
        more |= options if name == "ece" else {}
        want = metrics.METRICS[name].function(p, **more)
        assert bounds[name] >= 0
        if bounds[name] == math.inf:  # may be undefined, where bins may have one sample each
            assert name == "debiased_ece"
            assert p.num_samples <= 2 * bins
        elif math.isfinite(want):
            assert abs(got - want) <= bounds[name], name
        else:
            assert bounds[name] == 0
            assert got == want or math.isnan(got) == math.isnan(want) is True


# Logits of the top class: some in one cell of the histogram, some equal, some beyond float32.
PLACES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 40.0, 90.0, 800.0, -1.0])
OFFSETS = st.sampled_from([0.0, 1e-12, 1e-4, 2e-4, 3e-4, 1e-3, 2e-3])
SAMPLES = st.tuples(PLACES, OFFSETS, st.booleans())


@given(
    st.lists(SAMPLES, min_size=1, max_size=90),
    st.sampled_from([2, 3, 1000]),
    st.sampled_from([1, 2, 4, 15, 40]),
    st.sampled_from([1, 2, 3.5, 300, math.inf]),
    st.sampled_from(["width", "mass"]),
)
def test_bounds_hold_on_any_data(
    samples: list[tuple[float, float, bool]], num_classes: int, bins: int, norm: float, binning: str
) -> None:
    z = np.zeros((len(samples), num_classes))
    z[:, 0] = [place + offset for place, offset, _ in samples]
    labels = np.array([correct for _, _, correct in samples]).astype(int)
    check_bounds(Predictions(logits=z, labels=labels), bins=bins, norm=norm, binning=binning)


def crowded(*, right_on_top: bool) -> Predictions:
    """Two hundred samples in one cell, 120 correct: all above the wrong ones, or all below."""
    top = 1.999 + 1e-3 * np.arange(200) / 200
    right = np.arange(200) >= 80 if right_on_top else np.arange(200) < 120
    return Predictions(logits=np.stack([top, 0 * top], axis=1), labels=1 - right.astype(int))


def test_bounds_of_one_cell_are_reached() -> None:
    """The best and the worst order inside a cell: a histogram cannot distinguish them."""
    off: dict[str, list[float]] = {name: [] for name in ("auroc", "aurc", "eaurc", "fpr95")}
    for right_on_top in (True, False):
        p = crowded(right_on_top=right_on_top)
        check_bounds(p)
        total = Accumulator(2)
        total.update(p)
        values, bounds = total.result(), total.error_bounds()
        assert len(total.histogram().count) == 1
        for name, found in off.items():
            found.append(abs(values[name] - metrics.METRICS[name].function(p)))
    for name, found in off.items():
        assert max(found) == pytest.approx(bounds[name], abs=2e-9), name
    assert values["fpr95"] == 1
    assert metrics.fpr95(crowded(right_on_top=True)) == 0
    assert metrics.aupr_error(crowded(right_on_top=True)) == 1
    assert values["aupr_error"] == 0.4


@pytest.mark.parametrize(
    "ties",
    [
        [0, 1, 1, 1, 1, 2],
        *(
            pytest.param(ties, marks=pytest.mark.slow)
            for ties in ([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [0] * 6)
        ),
    ],
    ids=str,
)
def test_bounds_of_every_order_of_a_cell(ties: list[int]) -> None:
    """All 2^6 labels of six samples in one cell, with ties and without, beside others."""
    offsets = [1e-4 * k for k in ties]
    top = np.array([0.5, 0.9, *(2 + offset for offset in offsets), 4.0])
    for labels in itertools.product([0, 1], repeat=6):
        z = np.stack([top, 0 * top], axis=1)
        p = Predictions(logits=z, labels=[0, 1, *labels, 1])
        check_bounds(p, bins=4)


def test_bounds_of_calibrated_data_that_fill_the_cells() -> None:
    """Confidences at the ends of their cells, hits at one and misses at the other."""
    rng = np.random.default_rng(0)
    s = np.exp(rng.uniform(-6, 0, 2000)).astype(np.float32)
    first = (s.view(np.int32) >> 14) << 14  # the cell's least odds
    ends = first.view(np.float32), (first + (1 << 14) - 1).view(np.float32)
    for hit_end in (0, 1):
        right = rng.random(2000) < 1 / (1 + s)
        odds = np.where(right, ends[hit_end], ends[1 - hit_end]).astype(np.float64)
        z = np.stack([-np.log(odds * (1 + 1e-12)), 0 * odds], axis=1)
        check_bounds(Predictions(logits=z, labels=1 - right.astype(int)))


def test_bound_where_equal_confidences_straddle_an_edge() -> None:
    """Of a cell of 20 that the stream puts below the edge, 17 equal samples go above it."""
    cell = np.concatenate([1.999 + 1e-6 * np.arange(3), np.full(17, 1.9992)])
    top = np.concatenate([0.1 + 0.001 * np.arange(36), cell, 4 + 0.1 * np.arange(36)])
    p = Predictions(logits=np.stack([top, 0 * top], axis=1), labels=[0] * 36 + [1] * 56)
    check_bounds(p, bins=2)
    total = Accumulator(2, bins=2)
    total.update(p)
    assert abs(total.result()["adaptive_ece"] - metrics.adaptive_ece(p, bins=2)) > 0.3


def test_figures_of_the_page_on_measuring() -> None:
    bounds = accumulated(*draw(30_000, 10, spread=4, temperature=2)).error_bounds()
    page = {"adaptive_ece": 0.17, "auroc": 0.02, "fpr95": 0.07}
    assert {name: math.ceil(1e4 * bounds[name]) / 100 for name in page} == page
    total = Accumulator(2)
    total.update(crowded(right_on_top=True))
    assert total.error_bounds()["auroc"] == pytest.approx(0.5)


def test_undefined_and_infinite_values_have_the_bound_0() -> None:
    total = Accumulator(2)
    total.update(logits=[[5.0, 0.0], [6.0, -np.inf]], labels=[0, 1])
    assert total.result()["nll"] == math.inf
    assert total.error_bounds()["nll"] == 0
    right = Accumulator(2)
    right.update(logits=[[5.0, 0.0], [5.0001, 0.0]], labels=[0, 0])
    assert math.isnan(right.result()["auroc"])
    assert right.error_bounds()["auroc"] == 0


@cache
def result_of_300() -> dict[str, float]:
    z, labels = (array[:300] for array in CASES["mixed signs"])
    return accumulated(z, labels).result()


@given(st.lists(st.integers(0, 5), min_size=300, max_size=300), st.randoms())
def test_any_sharding_and_order_give_the_same_bits(shard: list[int], random) -> None:
    z, labels = (array[:300] for array in CASES["mixed signs"])
    whole = result_of_300()
    parts = [accumulated(z[np.array(shard) == k], labels[np.array(shard) == k]) for k in set(shard)]
    random.shuffle(parts)
    while len(parts) > 1:  # a random tree of merges
        other = parts.pop(random.randrange(len(parts)))
        parts[random.randrange(len(parts))].merge(other)
    assert parts[0].result() == whole


def test_sums_do_not_overflow() -> None:
    """Up to 2^53 samples every number is right; one more is refused, and nothing is changed."""
    z, labels = (array[:200] for array in CASES["mixed signs"])
    total = accumulated(z, labels)
    once = total.result()
    for doublings in range(1, 46):
        total.merge(total)
        assert total.num_samples == 200 * 2**doublings
        values = total.result()
        assert {name: values[name] for name in EXACT} == {name: once[name] for name in EXACT}
        for name in ("auroc", "aupr_error", "fpr95", "smooth_ece"):
            assert values[name] == pytest.approx(once[name], rel=1e-7)
        assert all(0 <= values[name] <= 1 for name in NEAR)
    again = pickle.loads(pickle.dumps(total))
    with pytest.raises(InputError, match=r"at most 2\^53 = 9,007,199,254,740,992 samples"):
        total.merge(total)
    assert total.result() == again.result() == values
    other = accumulated(z[:7], labels[:7])
    assert other.merge(total).result() == again.merge(accumulated(z[:7], labels[:7])).result()


def test_accumulators_are_full_at_2_to_the_53() -> None:
    total = accumulated(*(array[:1] for array in CASES["mixed signs"]))
    for _ in range(53):
        total.merge(total)
    before = total.result()
    assert total.num_samples == 2**53
    for more in (
        lambda: total.merge(accumulated(*CASES["mixed signs"])),
        lambda: total.update(logits=CASES["mixed signs"][0][:1], labels=[0]),
    ):
        with pytest.raises(InputError, match="accumulator holds at most"):
            more()
    assert total.result() == before


def test_batches_larger_than_what_is_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = CASES["mixed signs"]
    want = accumulated(z, labels).result()
    monkeypatch.setattr(_counts, "MOST_AT_ONCE", 7)
    assert accumulated(z, labels).result() == want


def test_threads_and_chunks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:

    z, labels = draw(60_000, 40)
    one = accumulated(z, labels).result()
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 9999)
    monkeypatch.setattr(arrays, "PARALLEL_ELEMENTS", 10**12)
    assert accumulated(z, labels).result() == one


def test_batches_of_a_training_loop() -> None:
    z, labels = CASES["mixed signs"]
    total = Accumulator(num_classes=10)
    for logits, truth in zip(
        torch.tensor(z).split(64), torch.tensor(labels).split(64), strict=True
    ):
        total.update(logits=logits.requires_grad_(), labels=truth)
    assert total.num_samples == len(labels)
    assert total.result() == accumulated(z, labels).result()


def test_survives_the_way_to_another_process() -> None:
    total = accumulated(*CASES["mixed signs"])
    again = pickle.loads(pickle.dumps(total))  # between processes of one program, not from files
    assert again.result() == total.result()


def test_memory_does_not_grow() -> None:
    z, labels = draw(2000, 10)
    total = Accumulator(num_classes=10)

    def state() -> int:
        return len(pickle.dumps(total))

    total.update(logits=z, labels=labels)
    before = state()
    for _ in range(20):
        total.update(logits=z, labels=labels)
    assert state() <= before + 200  # a few more digits


def test_extreme_values() -> None:
    p = Predictions(logits=[[0.0, -np.inf], [5.0, 0.0]], labels=[1, 0])
    total = Accumulator(2)
    total.update(p)
    assert total.result()["nll"] == math.inf
    huge = Predictions(logits=[[1e9, 0.0], [0.0, 3.0]], labels=[1, 1])
    total = Accumulator(2)
    total.update(huge)
    assert total.result()["nll"] == pytest.approx(metrics.nll(huge), rel=1e-12)


@given(st.lists(st.floats(0, 1e12), max_size=50))
def test_exact_sum(values: list[float]) -> None:
    got = exact_sum(np.array(values, dtype=np.float64)) * 2.0**-52
    assert got == pytest.approx(math.fsum(values), rel=1e-12, abs=1e-14)
    assert exact_sum(np.array(values[::-1])) == exact_sum(np.array(values))


def test_refusals() -> None:
    total = Accumulator(3)
    with pytest.raises(InputError, match="no samples yet"):
        total.result()
    with pytest.raises(InputError, match="3 classes"):
        total.update(logits=[[1.0, 2.0]], labels=[0])
    with pytest.raises(InputError, match="labels are required with logits or probs; got none"):
        total.update(logits=[[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match="batch must be Predictions; got list"):
        total.update([[1.0, 2.0, 3.0]])
    for wrong in (0, 1, "a", 2.5):
        with pytest.raises(InputError, match="num_classes must be a whole number from 2"):
            Accumulator(wrong)
    with pytest.raises(InputError, match="3 classes and 15 bins"):
        total.merge(Accumulator(3, bins=10))
    with pytest.raises(InputError, match="binning"):
        accumulated(*CASES["two classes"]).result(binning="sqrt")


# --- Parquet ----------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    z, labels = draw(5000, 6)
    for k in range(5):
        columns = {f"logit_{j}": z[k::5, j] for j in range(6)}
        table = pa.table({"label": labels[k::5], **columns})
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=300)
    return tmp_path, z, labels


def test_parquet_shards(shards: tuple[Path, np.ndarray, np.ndarray]) -> None:
    folder, z, labels = shards
    calls: list[tuple[int, int]] = []
    files = sorted(folder.glob("*.parquet"))
    total = accumulate_parquet(files, progress=lambda done, rows: calls.append((done, rows)))
    assert total.result() == accumulated(z, labels).result()
    assert calls[-1] == (5000, 5000)


def test_parquet_refusals(tmp_path: Path, shards: tuple[Path, np.ndarray, np.ndarray]) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        accumulate_parquet([tmp_path / "absent.parquet"])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1nonsensePAR1")
    with pytest.raises(InputError, match="cannot be read"):
        accumulate_parquet([tmp_path / "bad.parquet"])
    for columns, message in (
        ({"confidence": [0.5], "correct": [True]}, "must hold logits or probs"),
        ({"logit_0": [0.5], "logit_1": [0.1]}, "column label"),
        (
            {"label_0": [0], "label_1": [1], "prob_0": [0.1], "prob_1": [0.5]},
            "one label per sample",
        ),
    ):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        with pytest.raises(InputError, match=message):
            accumulate_parquet([tmp_path / "x.parquet"])
    extra = pa.table({"label": [0], "logit_0": [0.5], "logit_1": [0.1], "extra": [1]})
    pq.write_table(extra, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="unknown column"):
        accumulate_parquet([tmp_path / "x.parquet"], strict=True)
    with pytest.raises(InputError, match="A stream has no option 'labels'"):
        accumulate_parquet([tmp_path / "x.parquet"], labels="label")
    empty = pa.table({"label": pa.array([], pa.int64()), "logit_0": pa.array([], pa.float32())})
    pq.write_table(empty, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="at least one row"):
        accumulate_parquet([tmp_path / "x.parquet"])


def test_shards_must_be_alike(tmp_path: Path) -> None:
    z, labels = draw(60, 5)
    three = {"label": labels % 3, **{f"logit_{k}": z[:, k] for k in range(3)}}
    pq.write_table(pa.table(three), tmp_path / "a.parquet")
    others = (
        {**three, "logit_3": z[:, 3]},
        {**three, "label": labels.astype(str)},
        {**three, "weights": np.ones(60)},
        {**three, "logit_0": z[:, 0].astype(np.float64)},
    )
    for other in others:
        pq.write_table(pa.table(other), tmp_path / "b.parquet")
        with pytest.raises(InputError, match=r"got others in b\.parquet"):
            accumulate_parquet([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    for name, classes in (("c", ["x", "y", "z"]), ("d", ["y", "x", "z"])):
        p = Predictions(logits=z[:, :3], labels=labels % 3, classes=classes)
        p.save(tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="class names"):
        accumulate_parquet([tmp_path / "c.parquet", tmp_path / "d.parquet"])


@pytest.mark.parametrize("num_classes", [2, 9, 32, 33, 100])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_single_rows_give_the_same_bits(num_classes: int, kind: str) -> None:
    z, labels = draw(40, num_classes)
    scores = z if kind == "logits" else Predictions(logits=z, labels=labels).probs
    whole, rows = Accumulator(num_classes), Accumulator(num_classes)
    whole.update(**{kind: np.asfortranarray(scores)}, labels=labels)
    for k in range(40):
        rows.update(**{kind: scores[k : k + 1]}, labels=labels[k : k + 1])
    assert rows.result() == whole.result()


def test_losses_at_the_end_of_float64() -> None:
    total = Accumulator(3)
    total.update(logits=[[1e304, 0.0, 0.0], [1.0, 2.0, 3.0]], labels=[1, 0])
    assert total.result()["nll"] == pytest.approx(5e303)


def test_python_memory_of_a_pass_is_small() -> None:
    """The panel needs a chunk and O(N) columns: far below the matrix."""
    z, labels = draw(20_000, 1000, spread=1)
    from calibrant import measure

    measure(Predictions(logits=z[:100], labels=labels[:100]), intervals=False)  # imports
    tracemalloc.start()
    measure(Predictions(logits=z, labels=labels), intervals=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * z.nbytes  # buffers are a fixed size: under 10 % at 50,000 rows


def test_debiased_ece_of_few_samples_is_undefined_in_a_stream_too() -> None:
    z, labels = draw(12, 4)
    assert math.isnan(accumulated(z, labels).result()["debiased_ece"])
