"""Segmentation maps and token scores: every position is a sample, every image a cluster."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from calibrant import InputError, Predictions, measure, metrics
from calibrant._core import arrays
from calibrant._core.row_sweeps import NARROW_CLASSES
from calibrant.calibrators import TemperatureScaling
from calibrant.metrics._binning import width_sums
from calibrant.streaming import Accumulator

K, IGNORED = 4, 255


def maps(*positions: int, count: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (count, K, *positions)).astype("float32")
    truth = (z / 1.5 + rng.gumbel(size=z.shape)).argmax(axis=1)
    truth[:, 0] = IGNORED
    return z, truth


def by_hand(z: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plain loops over images and positions."""
    rows, labels, images = [], [], []
    for n in range(len(z)):
        for where in np.ndindex(*truth.shape[1:]):
            if truth[(n, *where)] != IGNORED:
                rows.append([z[(n, k, *where)] for k in range(K)])
                labels.append(truth[(n, *where)])
                images.append(n)
    return np.array(rows), np.array(labels), np.array(images)


@pytest.mark.parametrize("positions", [(9,), (6, 7), (2, 3, 4)])
def test_positions_are_samples_and_images_clusters(positions) -> None:
    z, truth = maps(*positions)
    rows, labels, images = by_hand(z, truth)
    for scores, given in ((z, truth), (torch.from_numpy(z), torch.from_numpy(truth))):
        p = Predictions(logits=scores, labels=given, ignore_index=IGNORED)
        np.testing.assert_array_equal(p.scores, rows)
        np.testing.assert_array_equal(p.labels, labels)
        np.testing.assert_array_equal(p.clusters, images)
    probs = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    q = Predictions(probs=probs, labels=truth, ignore_index=IGNORED)
    assert metrics.ece(q) == pytest.approx(metrics.ece(p), abs=1e-6)


def test_what_belongs_to_images_belongs_to_their_pixels() -> None:
    z, truth = maps(3, 4)
    _, _, images = by_hand(z, truth)
    patient, camera = np.array([7, 7, 8, 8, 8]), np.array(list("ababa"))
    pixel_weights = np.random.default_rng(1).uniform(1, 2, truth.shape)
    belongs = {"clusters": patient, "groups": {"camera": camera}, "weights": pixel_weights}
    p = Predictions(logits=z, labels=truth, ignore_index=IGNORED, **belongs)
    np.testing.assert_array_equal(p.clusters, patient[images])
    np.testing.assert_array_equal(p.groups["camera"], camera[images])
    np.testing.assert_array_equal(p.weights, pixel_weights[truth != IGNORED])


@pytest.mark.parametrize("classes", [30, 40])
def test_maps_are_laid_out_once_without_what_is_ignored(classes: int) -> None:
    """Of few classes plane by plane, of many as rows; also from maps that are not dense."""
    rng = np.random.default_rng(1)
    z = rng.normal(0, 2, (3, classes, 120, 100)).astype(np.float32)
    truth = rng.integers(0, classes, (3, 120, 100))
    truth[rng.random(truth.shape) < 0.1] = IGNORED
    truth[1] = IGNORED  # nothing remains of an image
    kept = truth.reshape(-1) != IGNORED
    expected = np.moveaxis(z, 1, -1).reshape(-1, classes)[kept]
    for scores in (z, np.asfortranarray(z), np.repeat(z, 2, axis=3)[..., ::2]):
        p = Predictions(logits=scores, labels=truth, ignore_index=IGNORED)
        np.testing.assert_array_equal(p.scores, expected)
        np.testing.assert_array_equal(p.clusters, np.repeat(np.arange(3), 12_000)[kept])
    if classes <= NARROW_CLASSES:
        tracemalloc.start()
        Predictions(logits=z, labels=truth, ignore_index=IGNORED)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        labels_and_places = 6 * truth.nbytes
        assert peak < expected.nbytes + labels_and_places


@pytest.mark.parametrize("ignored", [None, IGNORED])
def test_maps_of_few_classes_are_read_a_range_at_a_time(ignored: int | None) -> None:
    """Metrics need no matrix of all positions; a bad score that is left out does no harm."""
    z, truth = maps(6, 7)
    truth[2] = IGNORED if ignored else 0
    truth[:, 0] = IGNORED if ignored else 1
    if ignored:
        z[0, 1, 0, 0] = np.nan
    p = Predictions(logits=z, labels=truth, ignore_index=ignored)
    q = pickle.loads(pickle.dumps(p))
    values = metrics.ece(p), metrics.nll(p), metrics.classwise_ece(p)
    assert "scores" not in vars(p)
    expected = np.moveaxis(z, 1, -1).reshape(-1, K)[truth.reshape(-1) != IGNORED]
    for start, end in ((0, 1), (0, len(expected)), (30, 101), (41, 43), (5, 5)):
        np.testing.assert_array_equal(p.rows[start:end], expected[start:end])
    for one in (p, q):
        np.testing.assert_array_equal(one.scores, expected)
        assert one.rows is one.scores
    matrix = Predictions(logits=expected, labels=p.labels)
    assert values == (metrics.ece(matrix), metrics.nll(matrix), metrics.classwise_ece(matrix))
    for name in ("predicted", "correct", "odds_against", "confidence"):
        np.testing.assert_array_equal(getattr(q, name), getattr(matrix, name))


def test_ignored_samples_of_a_matrix() -> None:
    z = np.random.default_rng(0).normal(size=(6, 3))
    p = Predictions(
        logits=z, labels=[0, -100, 2, 1, -100, 0], ignore_index=-100, clusters=list("aabbcc")
    )
    np.testing.assert_array_equal(p.scores, z[[0, 2, 3, 5]])
    assert p.clusters.tolist() == list("abbc")


def test_a_stream_of_maps_is_the_whole() -> None:
    z, truth = maps(8, 8, count=6)
    whole = Predictions(logits=z, labels=truth, ignore_index=IGNORED)
    stream = Accumulator(num_classes=K)
    for start in range(0, 6, 2):
        some = slice(start, start + 2)
        stream.update(logits=z[some], labels=truth[some], ignore_index=IGNORED)
    assert stream.num_samples == whole.num_samples
    found = stream.result()
    for name in ("accuracy", "ece", "nll"):
        assert found[name] == pytest.approx(metrics.METRICS[name].function(whole), rel=1e-9)


def test_the_clusters_of_a_stream_of_maps_are_its_images() -> None:
    """Whatever batches they come in, and whichever accumulator they are added to."""
    z, truth = maps(70, 70, count=6)
    one, first, second = (Accumulator(num_classes=K) for _ in range(3))
    for some in ([0, 1, 2, 3], [4, 5]):
        one.update(logits=z[some], labels=truth[some], ignore_index=IGNORED)
    for stream, some in ((first, [5, 0]), (second, [3]), (second, [1, 4, 2])):
        stream.update(logits=z[some], labels=truth[some], ignore_index=IGNORED)
    assert one.state() == second.merge(first).state()
    resampled = one.streamed().resampled
    assert resampled is not None
    assert resampled.units == 6
    assert resampled.bin_count[0].sum() == (truth != IGNORED).sum()


def test_images_of_different_records_are_different_clusters() -> None:
    """Each record of maps counts its images from 0; parts of one record have the same images."""
    z, truth = maps(20, 20, count=6)
    whole = Predictions(logits=z, labels=truth, ignore_index=IGNORED)
    records = [
        Predictions(logits=z[some], labels=truth[some], ignore_index=IGNORED)
        for some in ([0, 1], [2, 3, 4], [5])
    ]
    halves = [whole.take(np.arange(len(whole)) % 2 == part) for part in (0, 1)]
    for batches in (records, pickle.loads(pickle.dumps(records)), halves, [whole]):
        stream = Accumulator(num_classes=K)
        for batch in batches:
            stream.update(batch)
        resampled = stream.streamed().resampled
        assert resampled is not None
        assert resampled.units == 6


def test_each_image_on_its_own() -> None:
    z, truth = maps(10, 10)
    p = Predictions(logits=z, labels=truth, ignore_index=IGNORED)
    for name, options in (("ece", {"bins": 10}), ("nll", {}), ("accuracy", {})):
        found = metrics.per_cluster(p, name, **options)
        want = [
            metrics.METRICS[name].function(
                Predictions(logits=z[[n]], labels=truth[[n]], ignore_index=IGNORED), **options
            )
            for n in range(len(z))
        ]
        np.testing.assert_allclose(found.values, want, rtol=1e-12)
        assert found.mean == pytest.approx(np.mean(want))
        assert found.samples.tolist() == [90] * 5
        assert found.ranked()[0] == np.argmax(want)
        assert found.ranked(best_first=True)[0] == np.argmin(want)
    with pytest.raises(InputError, match="p must have clusters"):
        metrics.per_cluster(Predictions(logits=np.eye(3), labels=[0, 1, 2]), "ece")
    with pytest.raises(InputError, match="no option 'bin'"):
        metrics.per_cluster(p, "ece", bin=3)


def test_calibrators_and_splits_work_on_maps() -> None:
    z, truth = maps(12, 12, count=20)
    p = Predictions(logits=z, labels=truth, ignore_index=IGNORED)
    val, test = p.split(0.5, seed=0)
    assert not set(val.clusters) & set(test.clusters)
    fitted = TemperatureScaling().fit(val)
    assert fitted.temperature_ == pytest.approx(1.5, abs=0.15)
    assert measure(fitted.transform(test), intervals=False)["ece"] < metrics.ece(test)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": np.zeros((5, 4, 6), int)}, r"labels must have shape \(5, 6, 4\)"),
        ({"labels": np.full((5, 6, 4), IGNORED)}, "ignore_index must leave at least one sample"),
        ({"labels": np.full((5, 6, 4), IGNORED), "ignore_index": None}, "ignore_index=…"),
        ({"ignore_index": "none"}, "ignore_index must be an integer"),
        ({"ignore_index": True}, "ignore_index must be an integer"),
        ({"weights": np.ones(3)}, "weights must have shape"),
        ({"logits": np.zeros((1, 1, 1, 1, 1, 1))}, r"logits must have shape \(N, K\)"),
    ],
)
def test_bad_maps(given, message) -> None:
    z, truth = maps(6, 4)
    with pytest.raises(InputError, match=message):
        Predictions(**{"logits": z, "labels": truth, "ignore_index": IGNORED} | given)


def test_a_batch_of_maps_is_added_whole_or_not_at_all() -> None:
    rng = np.random.default_rng(0)
    maps, truth = rng.normal(size=(2, 3, 200, 200)), rng.integers(0, 3, (2, 200, 200))
    stream = Accumulator(num_classes=3)
    wrong = truth.copy()
    wrong[1, 199, 199] = 7  # in the last part
    with pytest.raises(InputError, match="labels must lie in 0 … 2"):
        stream.update(logits=maps, labels=wrong)
    assert stream.num_samples == 0
    for bad, message in (
        ({"labels": np.full_like(truth, 9), "ignore_index": 9}, "at least one sample"),
        ({"labels": truth, "ignore_index": True}, "must be an integer"),
        ({"labels": truth[:1]}, "must have shape"),
    ):
        with pytest.raises(InputError, match=message):
            stream.update(logits=maps, **bad)
    stream.update(logits=maps, labels=wrong, ignore_index=7)
    assert stream.num_samples == truth.size - 1
    whole = Accumulator(num_classes=3)
    whole.update(Predictions(logits=maps, labels=wrong, ignore_index=7))
    assert whole.result() == stream.result()


def test_what_belongs_to_images_is_that_of_the_pixels_left() -> None:
    """By brute force, with an image of which every pixel is ignored, and images of one pixel."""
    rng = np.random.default_rng(3)
    for shape in ((4, 3, 5, 6), (7, 3, 1)):
        count, _, *positions = shape
        labels = rng.integers(3, size=(count, *positions))
        labels[rng.random(labels.shape) < 0.3] = 255
        labels[1] = 255
        labels[2] = 1
        name, weight = rng.integers(50, size=count), rng.random(count) + 0.5
        p = Predictions(
            logits=rng.normal(size=shape),
            labels=labels,
            ignore_index=255,
            groups={"name": name},
            weights=weight,
        )
        image = np.repeat(np.arange(count), labels[0].size)[labels.ravel() != 255]
        np.testing.assert_array_equal(p.clusters, image)
        np.testing.assert_array_equal(p.groups["name"], name[image])
        np.testing.assert_array_equal(p.weights, weight[image])


def test_bins_of_many_pixels_have_the_same_sums_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    confidence = rng.random(400_001)
    correct = rng.random(400_001) < confidence
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(arrays, "num_threads", lambda threads=threads: threads)
        found.append(width_sums(confidence, correct, 15))
    whole = [round(c * 2**53) for c in confidence.tolist()]
    index = np.ceil(confidence * 15).astype(int) - 1
    for sums in found:
        np.testing.assert_array_equal(sums.count, np.bincount(index, minlength=15))
        np.testing.assert_array_equal(sums.hits, np.bincount(index[correct], minlength=15))
        np.testing.assert_array_equal(sums.confidence, found[0].confidence)
    exact = sum(w for w, b in zip(whole, index.tolist(), strict=True) if b == 3) / 2**53
    assert found[0].confidence[3] == pytest.approx(exact, rel=1e-15)
