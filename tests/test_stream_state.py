"""The state of an accumulator as bytes, its intervals, and resampled clusters."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrant
from calibrant import InputError, Predictions, inference
from calibrant._measure import panel_of_stream
from calibrant.inference import Resampling
from calibrant.inference._clusters import design_effect
from calibrant.inference._streams import counted_draws, design_effect_of, joined_entries
from calibrant.metrics._sample import Ranked
from calibrant.metrics._simulated import SimulatedCounts
from calibrant.streaming import Accumulator, _state, accumulate_batches
from calibrant.streaming._weights import (
    REPLICATES,
    SKETCH_SIZE,
    estimated_count,
    hashes_of,
    merged_sketch,
    poisson_weights,
)
from tests.conftest import draw


def accumulated(p: Predictions, **options: Any) -> Accumulator:
    total = Accumulator(p.num_classes, **options)
    total.update(p)
    return total


def clustered(size: int = 600, clusters: int = 90, seed: int = 0) -> Predictions:
    z, labels = draw(size, 4, seed=seed)
    numbers = np.random.default_rng(seed).integers(0, clusters, size)
    return Predictions(logits=z, labels=labels, clusters=numbers)


# --- state ---


def test_a_state_returns_everything(case: tuple[np.ndarray, np.ndarray]) -> None:
    z, labels = case
    total = accumulated(Predictions(logits=z, labels=labels), bins=7)
    again = Accumulator.from_state(total.state())
    assert again.state() == total.state()
    assert again.result() == pytest.approx(total.result(), abs=0, rel=0, nan_ok=True)
    assert again.error_bounds() == total.error_bounds()
    assert (again.num_classes, again.bins, again.kernels) == (z.shape[1], 7, total.kernels)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_tree_of_merges_gives_the_same_bits(sizes: list[int], rng: Any) -> None:
    p = clustered(sum(sizes))
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    states = [accumulated(p.take(some)).state() for some in rows]
    while len(states) > 1:
        rng.shuffle(states)
        first, second, *states = states
        merged = Accumulator.from_state(first).merge(Accumulator.from_state(second))
        states.append(merged.state())
    assert states[0] == accumulated(p).state()


def test_sums_of_very_many_rows_do_not_overflow() -> None:
    """Merging doubles: 2^40 times 1,000 rows, far beyond what 64 bits hold in units of 2^-30."""
    p = clustered(1000)
    total = accumulated(p)
    one = total.result()
    for _ in range(40):
        total.merge(Accumulator.from_state(total.state()))
    assert total.num_samples == 1000 << 40
    many = total.result()
    for name in ("accuracy", "nll", "brier", "ece", "classwise_ece", "mean_entropy", "auroc"):
        assert many[name] == pytest.approx(one[name], abs=1e-9)
    found, once = total.streamed().resampled, accumulated(p).streamed().resampled
    assert found is not None
    assert once is not None
    assert found.units == once.units == 90
    np.testing.assert_array_equal(found.hits, once.hits * 2.0**40)
    np.testing.assert_allclose(found.bin_confidence, once.bin_confidence * 2.0**40, rtol=1e-12)


def repacked(state: bytes, change: Any) -> bytes:
    """A state with another head or other arrays."""
    header, arrays = _state._unpack(state)
    arrays = dict(arrays)
    change(header, arrays)
    return _state._pack(header, arrays)


def put(name: str, value: Any) -> Any:
    return lambda header, arrays: header.update({name: value})


def at(name: str, change: Any) -> Any:
    return lambda header, arrays: arrays.update({name: change(arrays[name].copy())})


def first(value: int) -> Any:
    def change(array: np.ndarray) -> np.ndarray:
        array[0] = value
        return array

    return change


HOSTILE = {
    "version": put("version", 99),
    "no version": lambda header, arrays: header.pop("version"),
    "classes": put("num_classes", -1),
    "many classes": put("num_classes", 10**8),
    "bins": put("bins", 10**30),
    "other bins": put("bins", 7),
    "kernels": put("kernels", "all"),
    "rows": put("rows", 7),
    "rows as text": put("rows", "x" * 9000),
    "totals": put("totals", {}),
    "huge total": put("totals", {"nll": "9" * 5000, "brier": "0", "mean_entropy": "0"}),
    "negative count": at("width count", first(-5)),
    "overflow": at("cells count", first(2**62)),
    "place": at("cells at", first(-1)),
    "large place": at("cells at", lambda a: a + 10**9),
    "twice the same place": at("cells at", np.zeros_like),
    "part": at("cells part", first(2**53)),
    "short": at("hits", lambda a: a[:-1]),
    "labels": at("hits", first(10**6)),
    "probabilities": at("prob whole", lambda a: a + 10**6),
    "confidence": at("width whole", lambda a: a + 1000),
    "missing": lambda header, arrays: arrays.pop("above"),
    "sketch": at("sketch", lambda a: a[::-1]),
    "long sketch": at("sketch", lambda a: np.arange(SKETCH_SIZE + 1)),
    "clusters": at("cluster counts", lambda a: a * 2),
    "impossible": put("impossible", 10**9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_states_give_one_error(name: str) -> None:
    state = accumulated(clustered(50, 7)).state()
    with pytest.raises(InputError, match=r"state must be|num_classes must|bins must"):
        Accumulator.from_state(repacked(state, HOSTILE[name]))


def test_other_bytes_give_one_error() -> None:
    state = accumulated(clustered(50, 7)).state()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])):
        pass
    rng = np.random.default_rng(0)
    flipped = []
    for _ in range(60):
        wrong = bytearray(state)
        wrong[rng.integers(0, len(wrong))] ^= 1 << int(rng.integers(0, 8))
        flipped.append(bytes(wrong))
    for wrong in (b"", b"x", b"PAR1" * 9, state[:-100], state[:40], bytes(sink.getvalue())):
        with pytest.raises(InputError, match="state must be what"):
            Accumulator.from_state(wrong)
    for wrong in flipped:  # a flipped sum may be possible; anything else is this error
        with suppress(InputError):
            Accumulator.from_state(wrong)


def test_a_state_holds_no_code() -> None:
    """It is an Arrow stream of numbers whose header is JSON."""
    with pa.ipc.open_stream(accumulated(clustered()).state()) as reader:
        assert reader.schema.types == [pa.string(), pa.large_list(pa.int64())]
        assert json.loads(reader.schema.metadata[_state.KEY])["version"] == 1


def test_clusters_are_given_for_all_or_none() -> None:
    p = clustered()
    plain = Predictions(logits=p.logits, labels=p.labels)
    for a, b in ((p, plain), (plain, p)):
        total = accumulated(a)
        with pytest.raises(InputError, match="for all samples or for none"):
            total.update(b)
        with pytest.raises(InputError, match="for all samples or for none"):
            total.merge(accumulated(b))
    weighted = Predictions(logits=p.logits, labels=p.labels, weights=np.ones(600))
    with pytest.raises(InputError, match="weights cannot be accumulated"):
        accumulated(weighted)


def test_arrow_batches() -> None:
    z, labels = draw(300, 3)
    table = pa.table({"label": labels, **{f"logit_{k}": z[:, k] for k in range(3)}})
    total = accumulate_batches(table.to_batches(max_chunksize=70))
    assert total.state() == accumulated(Predictions(logits=z, labels=labels)).state()
    with pytest.raises(InputError, match="at least one row"):
        accumulate_batches([table[:0]])
    with pytest.raises(InputError, match="column label"):
        accumulate_batches([table.drop_columns(["label"])])


# --- clusters ---


def test_weights_are_poisson_and_depend_on_the_name_alone() -> None:
    names = np.array([f"patient {k}" for k in range(4000)])
    weights = poisson_weights(hashes_of(names)).astype(float)
    assert weights.shape == (4000, REPLICATES)
    values, counts = np.unique(weights, return_counts=True)
    expected = [math.exp(-1) / math.factorial(int(k)) * weights.size for k in values]
    enough = np.array(expected) > 50
    assert np.abs((counts - expected)[enough] / np.sqrt(np.array(expected)[enough])).max() < 4.5
    assert abs(np.corrcoef(weights[:2000].T)[0, 1:]).max() < 0.12  # replicates are independent
    some = poisson_weights(hashes_of(names[[17, 3]]))
    np.testing.assert_array_equal(some, weights[[17, 3]])
    ints = hashes_of(np.arange(5, dtype=np.int32))
    np.testing.assert_array_equal(ints, hashes_of(np.arange(5, dtype=np.int64)))


def test_clusters_are_counted() -> None:
    hashes = hashes_of(np.arange(100_000))
    few = merged_sketch(hashes[:50], hashes[20:70])
    assert estimated_count(few) == 70
    many = merged_sketch(*np.split(hashes, 10))
    assert estimated_count(many) == pytest.approx(100_000, rel=0.06)
    np.testing.assert_array_equal(many, np.sort(hashes)[:SKETCH_SIZE])


def test_replicates_are_those_of_a_loop_over_rows() -> None:
    """Brute force: each row counts as often as its cluster was drawn."""
    p = clustered(200, 40)
    found = accumulated(p).streamed().resampled
    assert found is not None
    names = np.unique(p.clusters)
    drawn = dict(zip(names, poisson_weights(hashes_of(names)), strict=True))
    for replicate in (0, 7, 199):
        weight = np.array([float(drawn[c][replicate]) for c in p.clusters])
        row = replicate + 1
        assert found.hits[row].sum() == weight @ p.correct
        assert found.misses[row].sum() == weight @ ~p.correct
        assert found.bin_confidence[row].sum() == pytest.approx(weight @ p.confidence, abs=1e-3)
        nll = -p.log_probs[np.arange(200), p.labels]
        assert found.means["nll"][row] == pytest.approx(np.average(nll, weights=weight), abs=1e-5)
    assert found.units == len(names)


def test_design_effect_of_repeated_rows() -> None:
    """Six copies of each row in its cluster are worth one."""
    z, labels = draw(500, 4)
    rows = np.repeat(np.arange(500), 6)
    p = Predictions(logits=z[rows], labels=labels[rows], clusters=rows)
    found = accumulated(p).streamed().resampled
    assert found is not None
    assert design_effect_of(found) == pytest.approx(design_effect(p).larger, rel=0.25)
    alone = Predictions(logits=z, labels=labels, clusters=np.arange(500))
    one = accumulated(alone).streamed().resampled
    assert one is not None
    assert 1 <= design_effect_of(one) < 1.4


# --- intervals ---


@pytest.mark.parametrize("make", ["independent", "clusters"])
def test_intervals_are_those_in_memory(make: str) -> None:
    p = clustered(1500, 300, seed=5)
    if make == "independent":
        p = Predictions(logits=p.logits, labels=p.labels)
    want = calibrant.measure(p, replicates=400, positive=False)
    found = panel_of_stream(accumulated(p), resampling=Resampling(0.95, 400))
    for name in found:
        got, known = found.interval(name), want.interval(name)
        if name == "classwise_ece":
            assert math.isnan(got.low)
            continue
        width = known.high - known.low
        slack = 0.25 * width if make == "independent" else 0.4 * width
        assert got.low == pytest.approx(known.low, abs=slack + 1e-3), name
        assert got.high == pytest.approx(known.high, abs=slack + 1e-3), name
    assert found.assumed == want.assumed
    assert "No interval in a stream: classwise ECE." in str(found)


def test_intervals_of_a_stream_do_not_depend_on_its_split() -> None:
    p = clustered(900, 200)
    whole = accumulated(p)
    parts = Accumulator(4)
    for rows in np.array_split(np.arange(900)[::-1], 5):
        parts.merge(Accumulator.from_state(accumulated(p.take(rows)).state()))
    how = Resampling(0.9, 50, 3)
    first, second = (panel_of_stream(t, resampling=how).to_dict() for t in (whole, parts))
    assert first == second


def test_intervals_of_extremes() -> None:
    """One sample, one cluster, all right, impossible labels: bounds or none, never nonsense."""
    how = Resampling(0.95, 40)
    one = panel_of_stream(accumulated(Predictions(logits=[[2.0, 0.0]], labels=[0])), resampling=how)
    assert all(math.isnan(one.interval(name).low) for name in one)
    z, labels = draw(60, 3)
    same = Predictions(logits=z, labels=labels, clusters=np.zeros(60, dtype=int))
    alone = panel_of_stream(accumulated(same), resampling=how)
    assert all(math.isnan(alone.interval(name).low) for name in alone)
    right = panel_of_stream(
        accumulated(Predictions(logits=z, labels=z.argmax(axis=1))), resampling=how
    )
    assert right.interval("accuracy").low < 1
    assert 0 <= right.interval("aurc").low < right.interval("aurc").high
    assert math.isnan(right.interval("auroc").low)
    probs = np.tile([[1.0, 0.0]], (30, 1))
    never = panel_of_stream(
        accumulated(Predictions(probs=probs, labels=[1] * 9 + [0] * 21)), resampling=how
    )
    assert (never["nll"], never.interval("nll").low) == (math.inf, math.inf)


def test_joined_entries_keep_what_matters() -> None:
    rng = np.random.default_rng(0)
    c = np.sort(rng.random(20_000))
    ranked = Ranked(c, np.ones(20_000), (rng.random(20_000) < c).astype(float))
    few = joined_entries(ranked)
    assert len(few.count) <= 2100
    assert few.total == ranked.total
    for name in ("ece", "adaptive_ece", "smooth_ece", "auroc"):
        function = calibrant.metrics.METRICS[name].function
        assert function(few) == pytest.approx(function(ranked), abs=2e-4), name
    assert joined_entries(few) is few or len(joined_entries(few).count) <= len(few.count)


def test_counted_draws_have_the_chances_of_the_path() -> None:
    c = np.array([0.2, 0.5, 0.9])
    ranked = Ranked(c, np.array([400.0, 300.0, 300.0]), np.zeros(3))
    path = inference._paths.Path(np.stack([c, c * 0.8, c * 0.5]))
    drawn = counted_draws(ranked, 400, (0, 0), path)
    assert (drawn.sizes == 1000).all()
    chance = drawn.hits.sum(axis=0) / drawn.count.sum(axis=0)
    np.testing.assert_allclose(chance, path.populations(), atol=0.01)
    assert (np.diff(drawn.hits, axis=1) <= 0).all()  # falling chances only lose hits


def test_counts_give_the_statistics_of_single_samples() -> None:
    """SimulatedCounts against the metrics themselves, one replicate at a time."""
    rng = np.random.default_rng(1)
    c = np.sort(rng.random(50))
    count = rng.poisson(3, (4, 50)).astype(float)
    hits = rng.binomial(count[:, None].astype(int), 0.6, (4, 2, 50)).astype(float)
    drawn = SimulatedCounts(c, count, hits)
    estimators = inference._grid.estimators_of(
        ["ece", "adaptive_ece", "debiased_ece", "smooth_ece", "mce"],
        {},
        Ranked(c, count[0], hits[0, 0]),
    )
    for name, e in estimators.items():
        want = drawn.one_by_one(e.statistic)
        atol = 2e-4 if name == "smooth_ece" else 1e-12  # few samples: a coarser grid
        np.testing.assert_allclose(e.batched(drawn), want, atol=atol, err_msg=name)
