"""Several labels per sample: the record, its panels, its calibrator, against binary twins."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr
from typer.testing import CliRunner

import calibrant
from calibrant import InputError, MultiLabel, Predictions
from calibrant import metrics as m
from calibrant.calibrators import MultiLabelCalibrator, labels_out_of_fold, make_calibrator
from calibrant.cli import app
from calibrant.inference import Resampling, macro_intervals

NAN = math.nan


def drawn(n: int = 200, labels: int = 3, *, seed: int = 0, missing: float = 0.0, hot: float = 1.5):
    """Logits that are ``hot`` times too large, labels, and names."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-0.5, 1.5, (n, labels))
    y = (rng.random(z.shape) < expit(z / hot)).astype(float)
    y[rng.random(z.shape) < missing] = NAN
    return MultiLabel(logits=z, labels=y, names=[f"l{k}" for k in range(labels)])


def twin(p: MultiLabel, k: int) -> Predictions:
    """The same label, taken by hand."""
    keep = [i for i in range(len(p)) if p.mask[i, k]]
    return Predictions.from_binary(
        **{p.kind: np.array([p.scores[i, k] for i in keep])},
        labels=[int(p.labels[i, k]) for i in keep],
    )


# --- the record -------------------------------------------------------------------------------


def test_nan_and_mask_are_the_same() -> None:
    scores, labels = [[0.9, 0.2], [0.4, 0.6], [0.1, 0.3]], [[1, 0], [0, 1], [1, 1]]
    mask = np.array([[True, False], [True, True], [False, True]])
    a = MultiLabel(probs=scores, labels=labels, mask=mask)
    b = MultiLabel(probs=scores, labels=np.where(mask, labels, NAN))
    for name in ("labels", "mask", "scores"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert a.names == ("0", "1")
    assert a.label(1).labels.tolist() == [1, 1]
    assert a.label("1").probs[:, 1].tolist() == [0.6, 0.3]


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_files_take_and_split(tmp_path: Path, missing: float, kind: str) -> None:
    p = drawn(30, missing=missing)
    if kind == "probs":
        p = p.with_scores("probs", p.probs)
    p.save(tmp_path / "p.npz")
    q = MultiLabel.load(tmp_path / "p.npz")
    assert (q.kind, q.names, q.meta) == (kind, p.names, p.meta)
    for name in ("labels", "mask", "scores"):
        assert np.array_equal(getattr(p, name), getattr(q, name))
        assert np.array_equal(getattr(p.take([3, 1]), name), getattr(p, name)[[3, 1]])
    first, rest = p.split(0.4, seed=1)
    assert len(first) == 12
    both = np.concatenate([first.scores, rest.scores])
    assert sorted(both[:, 0]) == sorted(p.scores[:, 0])
    with pytest.raises(AttributeError, match="frozen"):
        p.names = ("a",)  # type: ignore[misc]


def test_bad_input_gets_one_sentence(tmp_path: Path) -> None:
    ok, y = [[0.5, 0.5]], [[1, 0]]
    for given, words in (
        ({"labels": y}, "takes exactly one"),
        ({"probs": [0.5], "labels": [1]}, r"must have shape \(N, L\)"),
        ({"probs": [[1.5, 0]], "labels": y}, r"must lie in \[0, 1\]"),
        ({"logits": [[np.inf, 0]], "labels": y}, "must be finite"),
        ({"logits": [[NAN, 0]], "labels": y}, "must be finite; got nan in row 0, column 0"),
        ({"probs": ok, "labels": [[1, 0, 1]]}, r"must have shape \(1, 2\)"),
        ({"probs": ok, "labels": [[1, 2]]}, "must be 0, 1, or NaN"),
        ({"probs": ok, "labels": [["a", "b"]]}, "labels must hold real numbers"),
        ({"probs": ok, "labels": [[NAN, NAN]]}, "must be known somewhere"),
        ({"probs": ok, "labels": y, "mask": [[1.5, 0]]}, "mask must be booleans"),
        ({"probs": ok, "labels": y, "names": ["a"]}, "must be 2 different names"),
        ({"probs": ok, "labels": y, "names": ["a", "a"]}, "must be 2 different names"),
        ({"probs": ok, "labels": y, "names": ["a", "macro"]}, "must not be macro"),
        ({"probs": ok, "labels": y, "names": "ab"}, "must be a list"),
    ):
        with pytest.raises(InputError, match=words):
            MultiLabel(**given)
    p = MultiLabel(probs=ok, labels=[[1, NAN]], names=["a", "b"])
    for call, words in (
        (lambda: p.label("c"), "must name one of the labels"),
        (lambda: p.label(2), "from 0 to 1"),
        (lambda: p.label("b"), "'b' must be known"),
        (lambda: p.take([]), "at least one sample"),
        (lambda: p.split(0.5, seed=0), "at least two samples"),
        (lambda: p.save(tmp_path / "p.txt"), r"must end in \.npz"),
        (lambda: calibrant.measure(p, positive=1), "belongs to one label per sample"),
        (lambda: calibrant.measure(p, metrics=["ece"]), "about the probability of a class"),
        (lambda: calibrant.measure(p, metrics=[]), "at least one"),
        (lambda: calibrant.measure(p, metrics="positive_ece"), "must be a list"),
    ):
        with pytest.raises(InputError, match=words):
            call()


# --- measure ----------------------------------------------------------------------------------


def test_panels_are_those_of_binary_twins() -> None:
    p = drawn(120, missing=0.2)
    names = [name for name, metric in m.METRICS.items() if metric.view == "positive class"]
    found = calibrant.measure(p, intervals=False, metrics=names)
    assert list(found) == [*p.names, "macro", "micro"]
    twins = [twin(p, k) for k in range(3)]
    pooled = Predictions.from_binary(
        logits=np.concatenate([t.logits[:, 1] for t in twins]),
        labels=np.concatenate([t.labels for t in twins]),
    )
    for name in names:
        values = [m.METRICS[name].function(t) for t in twins]
        for label, value in zip(p.names, values, strict=True):
            assert found[label][name] == pytest.approx(value, rel=1e-12)
        assert found["macro"][name] == pytest.approx(np.mean(values), rel=1e-12)
        assert found["micro"][name] == pytest.approx(m.METRICS[name].function(pooled), rel=1e-9)


def test_intervals_of_labels_and_the_worst_one() -> None:
    p = drawn(80, missing=0.1)
    chosen = ["positive_ece", "positive_auroc", "prevalence"]
    found = calibrant.measure(p, metrics=chosen, replicates=150)
    for k, label in enumerate(p.names):
        alone = calibrant.measure(twin(p, k), metrics=chosen, replicates=150)
        assert found[label].measured == alone.measured
    worst = max(p.names, key=lambda label: found[label]["positive_ece"])
    strict = calibrant.measure(
        p.label(worst), metrics=["positive_ece"], level=1 - 0.05 / 3, replicates=450
    ).interval("positive_ece")
    assert (found.worst.label, found.worst.metric) == (worst, "positive_ece")
    plain = found[worst].interval("positive_ece")
    assert found.worst.interval.low == min(strict.low, plain.low)  # despite simulation noise
    assert found.worst.interval.high == max(strict.high, plain.high)
    assert found.worst.interval.level == 0.95
    assert f"Worst positive-class ECE: {worst}" in str(found)
    for average in ("macro", "micro"):
        for name in chosen:
            interval = found[average].interval(name)
            assert interval.low < interval.high
    by_rank = calibrant.measure(p, metrics=["positive_auroc"], intervals=False)
    assert by_rank.worst.label == min(p.names, key=lambda label: by_rank[label]["positive_auroc"])
    assert calibrant.measure(p, metrics=["prevalence"], intervals=False).worst is None


def test_the_macro_interval_of_an_average_is_the_bootstrap_over_samples() -> None:
    p, level = drawn(60, missing=0.3), 0.9
    records = [(p.label(k).positive_class(), p.known(k)) for k in range(3)]
    resampling = Resampling(level, 50, 7)
    found = macro_intervals(records, ["positive_brier"], num_samples=60, resampling=resampling)
    rng = np.random.default_rng(7)
    squares = np.where(p.mask, (p.probs - p.labels) ** 2, NAN)
    draws = [squares[rng.integers(0, 60, 60)] for _ in range(50)]
    values = [np.nanmean(draw, axis=0).mean() for draw in draws]
    tail = (1 - level) / 2
    low = np.quantile(values, tail, method="lower")
    high = np.quantile(values, 1 - tail, method="higher")
    interval = found["positive_brier"]
    assert interval.value == pytest.approx(np.nanmean(squares, axis=0).mean())
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_labels_that_go_together_have_a_wider_macro_interval() -> None:
    """Ten copies of a label say no more than one."""
    one = drawn(150, 1, seed=3)
    copies = MultiLabel(logits=np.tile(one.scores, 10), labels=np.tile(one.labels, 10))
    apart = drawn(150, 10, seed=3)
    width = {}
    for name, p in {"one": one, "copies": copies, "apart": apart}.items():
        found = calibrant.measure(p, metrics=["positive_ece"], replicates=200)["macro"]
        pooled = calibrant.measure(p, metrics=["positive_ece"], replicates=200)["micro"]
        ends = pooled.interval("positive_ece")
        width[f"{name} pooled"] = ends.high - ends.low
        width[name] = found.interval("positive_ece").high - found.interval("positive_ece").low
    assert width["copies"] == pytest.approx(width["one"], rel=0.25)
    assert width["copies pooled"] > 0.6 * width["one pooled"]
    assert width["apart pooled"] < 0.5 * width["one pooled"]
    assert width["apart"] < 0.7 * width["one"]


def test_labels_without_positives_unknown_labels_and_one_sample() -> None:
    p = drawn(50, 3, seed=1)
    y = p.labels.astype(float)
    y[:, 1], y[:, 2] = 0, NAN
    p = MultiLabel(logits=p.scores, labels=y, names=["a", "none", "unknown"])
    found = calibrant.measure(p, replicates=30)
    assert math.isnan(found["none"]["positive_auroc"])
    assert found["macro"]["positive_auroc"] == found["a"]["positive_auroc"]
    assert found["unknown"].num_samples == 0
    assert math.isnan(found["unknown"]["positive_ece"])
    errors = [found[name]["positive_ece"] for name in ("a", "none")]
    assert found["macro"]["positive_ece"] == pytest.approx(np.mean(errors))
    assert found.worst.label in ("a", "none")
    json.dumps(found.to_dict(), allow_nan=False)
    single = calibrant.measure(p.take([0]), replicates=30)
    assert math.isnan(single["macro"].interval("positive_ece").low)
    assert single["macro"]["positive_brier"] == pytest.approx(
        np.mean((p.probs[0, :2] - y[0, :2]) ** 2)
    )


def test_as_table_and_as_data() -> None:
    found = calibrant.measure(drawn(40), intervals=False, metrics=["positive_ece", "prevalence"])
    table = found.to_arrow()
    assert table.column_names == ["label", "metric", "value", "low", "high", "better", "view"]
    assert len(table) == 5 * 2
    data = found.to_dict()
    assert list(data["labels"]) == ["l0", "l1", "l2"]
    assert data["macro"]["metrics"]["positive_ece"]["value"] == found["macro"]["positive_ece"]
    lines = str(found).splitlines()
    assert lines[0] == "40 samples, 3 labels"
    assert [line.split()[0] for line in lines[3:8]] == [*found]
    assert "<table>" in found._repr_html_()
    with pytest.raises(KeyError, match="Did you mean 'macro'"):
        found["makro"]


@pytest.mark.slow
@pytest.mark.parametrize(("hot", "together"), [(1.0, 0.6), (1.5, 0.0), (1.5, 0.6)])
def test_the_macro_interval_covers(hot: float, together: float) -> None:
    """95 % intervals of the macro ECE, where labels of a sample are independent or not."""
    rng = np.random.default_rng(9)
    z = rng.normal(-1, 1.5, 1_000_000)
    gap = expit(z / hot) - expit(z)
    truth = np.abs(np.bincount(np.ceil(expit(z) * 15).astype(int) - 1, gap)).sum() / len(z)
    shape, hits = (400, 5), 0
    for seed in range(30):
        rng = np.random.default_rng((1, seed))
        logits, lots = (
            math.sqrt(together) * rng.normal(size=(shape[0], 1))
            + math.sqrt(1 - together) * rng.normal(size=shape)
            for _ in range(2)
        )
        logits = 1.5 * logits - 1
        p = MultiLabel(logits=logits, labels=ndtr(lots) < expit(logits / hot))
        found = macro_intervals(
            [(p.label(k).positive_class(), p.known(k)) for k in range(shape[1])],
            ["positive_ece"],
            num_samples=len(p),
            resampling=Resampling(0.95, 400, seed),
        )["positive_ece"]
        hits += found.low <= truth <= found.high
    assert hits >= 26


# --- calibrators ------------------------------------------------------------------------------

METHODS = ("temperature", "platt", "beta", "isotonic")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_the_ends_of_the_shrinkage(method: str, kind: str) -> None:
    """At 0 each label has its own fit; far beyond its events, that of all labels together."""
    p = drawn(300, missing=0.1, hot=2.0)
    if kind == "probs":
        p = p.with_scores("probs", p.probs)
    own = MultiLabelCalibrator(method=method, shrinkage=0).fit(p).transform(p)
    much = MultiLabelCalibrator(method=method, shrinkage=1e9).fit(p).transform(p)
    twins = [twin(p, k) for k in range(3)]
    pooled = Predictions.from_binary(
        **{kind: np.concatenate([t.scores[:, 1] for t in twins])},
        labels=np.concatenate([t.labels for t in twins]),
    )
    rare = min(np.bincount(pooled.labels))
    shared = make_calibrator(method).fit(pooled, weights=np.full(len(pooled), 1e9 / rare))
    for k, t in enumerate(twins):
        alone = make_calibrator(method).fit(t).transform(t).probs[:, 1]
        assert own.label(k).probs[:, 1] == pytest.approx(alone, abs=1e-9)
        together = shared.transform(t).probs[:, 1]
        assert much.label(k).probs[:, 1] == pytest.approx(together, abs=1e-5)
    assert own.names == p.names
    assert np.array_equal(own.labels, p.labels)
    assert np.array_equal(own.mask, p.mask)


def test_the_formula_of_the_shrinkage() -> None:
    """The temperature of a label minimises its log loss plus kappa / E times that of all."""
    p, kappa = drawn(150, missing=0.1, hot=2.0), 30.0
    c = MultiLabelCalibrator(method="temperature", shrinkage=kappa).fit(p)
    known, y = p.mask, p.labels
    share = kappa / min(y[known].sum(), known.sum() - y[known].sum())
    for k, name in enumerate(p.names):
        own = known[:, k]

        def loss(t: float, own=own, k=k) -> float:
            each = np.logaddexp(0, np.where(y, -1, 1) * p.scores / t)
            return each[own, k].sum() + share * each[known].sum()

        t = c.labels_[name].temperature_
        assert loss(t) < min(loss(t * 1.001), loss(t / 1.001))
        positives = y[own, k].sum()
        rare = min(positives, own.sum() - positives)
        assert c.weights_[k] == pytest.approx(rare / (rare + kappa))


def test_shrinkage_helps_rare_labels_and_leaves_frequent_ones() -> None:
    """Log loss on new samples: below that of own fits where labels are rare."""
    hot, labels = 2.0, 12

    def many(n: int, seed: int, shift: float) -> MultiLabel:
        rng = np.random.default_rng(seed)
        z = rng.normal(shift, 2.0, (n, labels))
        return MultiLabel(logits=z, labels=rng.random(z.shape) < expit(z / hot))

    def loss(shrinkage: float, shift: float, n: int) -> float:
        fitted = MultiLabelCalibrator(method="platt", shrinkage=shrinkage).fit(many(n, 0, shift))
        test = fitted.transform(many(5000, 1, shift))
        names = ["positive_log_loss"]
        found = calibrant.measure(test, metrics=names, intervals=False)
        return found["macro"][names[0]]

    assert loss(20, -6.0, 150) < loss(0, -6.0, 150) - 0.001
    assert loss(20, 0.0, 1500) == pytest.approx(loss(0, 0.0, 1500), abs=5e-4)


def test_rare_unknown_and_one_sided_labels_are_calibrated() -> None:
    p = drawn(100, 4, hot=2.0)
    y = p.labels.astype(float)
    y[:, 1], y[:, 2], y[:, 3] = 0, NAN, 1
    p = MultiLabel(logits=p.scores + [0, -4, 0, 4], labels=y)
    for method in METHODS:
        c = MultiLabelCalibrator(method=method).fit(p)
        assert c.labels_["2"] is c.shared_
        assert c.weights_[1:].tolist() == [0, 0, 0]
        assert np.isfinite(c.transform(p).scores).all()


def test_a_large_pool_is_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    p = drawn(1500, 4, hot=2.0)
    exact = MultiLabelCalibrator(shrinkage=200).fit(p).transform(p)
    monkeypatch.setattr("calibrant.calibrators._multilabel.MOST_SHARED", 500)
    thin = MultiLabelCalibrator(shrinkage=200).fit(p).transform(p)
    assert np.abs(thin.probs - exact.probs).max() < 0.01
    assert np.abs(thin.probs - exact.probs).max() > 0


@pytest.mark.parametrize("method", METHODS)
def test_calibrators_as_files(method: str, tmp_path: Path) -> None:
    p = drawn(60)
    c = MultiLabelCalibrator(method=method, shrinkage=5).fit(p)
    c.save(tmp_path / "c.json")
    again = calibrant.load_calibrator(tmp_path / "c.json")
    assert np.array_equal(again.transform(p).scores, c.transform(p).scores)
    assert (again.method, again.shrinkage, again.names_) == (method, 5, p.names)
    assert np.array_equal(again.weights_, c.weights_)
    data = json.loads((tmp_path / "c.json").read_text())
    other = "isotonic" if method != "isotonic" else "platt"
    for change in (
        {"method": other},
        {"method": 1},
        {"shrinkage": -1},
        {"events": [1]},
        {"events": [1, 2, -3]},
        {"labels": {}},
        {"labels": []},
        {"shared": None},
        {"version": 9},
        {"more": 1},
    ):
        (tmp_path / "d.json").write_text(json.dumps(data | change))
        with pytest.raises(InputError):
            calibrant.load_calibrator(tmp_path / "d.json")


def test_what_the_calibrator_refuses() -> None:
    p = drawn(20)
    for call, words in (
        (lambda: MultiLabelCalibrator(method="spline").fit(p), "method must be 'temperature'"),
        (lambda: MultiLabelCalibrator(shrinkage=-1).fit(p), "shrinkage must be"),
        (lambda: MultiLabelCalibrator().fit(p.label(0)), "p must be MultiLabel"),
        (lambda: MultiLabelCalibrator().transform(p), "not fitted yet"),
        (lambda: MultiLabelCalibrator().fit(p).transform(drawn(20, 2)), "labels of the fit"),
    ):
        with pytest.raises(InputError, match=words):
            call()


@pytest.mark.parametrize("method", METHODS)
def test_onnx_gives_the_same_probabilities(method: str, tmp_path: Path) -> None:
    import onnxruntime

    p = drawn(60)
    c = MultiLabelCalibrator(method=method, shrinkage=5).fit(p)
    c.to_onnx(tmp_path / "c.onnx")
    odds = np.concatenate([p.scores, np.full((1, p.num_labels), 1e4), [[-80.0, 0.0, 80.0]]])
    odds = odds.astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    (found,) = session.run(None, {"logits": odds})
    assert found.shape == odds.shape
    assert np.abs(found - c.predict_proba(odds)).max() < 1e-6
    assert np.array_equal(c.predict_proba(p.scores), c.transform(p).probs)


def test_out_of_fold_by_hand() -> None:
    p = drawn(30, missing=0.2)
    c = MultiLabelCalibrator(method="platt", shrinkage=5)
    found = labels_out_of_fold(c, p, 3, seed=4)
    order = np.random.default_rng(4).permutation(len(p))
    for held in np.array_split(order, 3):
        rest = [i for i in range(len(p)) if i not in set(held.tolist())]
        by_others = c.clone().fit(p.take(rest)).transform(p)
        assert np.allclose(found.scores[held], by_others.scores[held])


# --- files and commands -----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet", "safetensors"])
def test_every_format_keeps_names_and_unknown_labels(ending: str, tmp_path: Path) -> None:
    p = drawn(20, missing=0.2)
    p.save(tmp_path / f"p.{ending}")
    found = calibrant.load(tmp_path / f"p.{ending}")
    assert isinstance(found, MultiLabel)
    assert (found.names, found.kind) == (p.names, p.kind)
    assert np.array_equal(found.mask, p.mask)
    assert np.array_equal(found.labels, p.labels)
    assert np.allclose(found.scores, p.scores)


def test_one_hot_classes_are_noted(tmp_path: Path) -> None:
    """They could be labels of which each sample has one, so they are read, with a note."""
    path, scores = tmp_path / "p.npz", np.zeros((4, 3))
    np.savez(path, logits=scores, labels=np.eye(3)[[0, 1, 2, 0]])
    with pytest.warns(UserWarning, match=r"p\.npz: read as 3 labels per sample.*argmax"):
        assert isinstance(calibrant.load(path), MultiLabel)
    np.savez(path, logits=scores, labels=[[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrant.load(path)


def test_columns_of_a_table_are_labels_only_beside_their_scores(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("prob_cat,prob_dog,label_cat,label_dog,id\n0.9,0.2,1,0,a\n0.4,0.6,,1,b\n")
    with pytest.warns(UserWarning, match="not used: id"):
        p = calibrant.load(path)
    assert p.names == ("cat", "dog")
    assert p.mask.tolist() == [[True, True], [False, True]]
    path.write_text("prob_cat,prob_dog,label,label_cat\n0.9,0.1,cat,1\n")
    with pytest.warns(UserWarning, match="not used: label_cat"):
        assert isinstance(calibrant.load(path), Predictions)
    path.write_text("prob_cat,prob_dog,label_cat,label_dog\n0.9,0.2,yes,no\n")
    with pytest.raises(InputError, match="must hold 0 and 1"):
        calibrant.load(path)


def test_commands(tmp_path: Path) -> None:
    fit, test = drawn(120, missing=0.1).split(0.5, seed=0)
    fit.save(tmp_path / "fit.npz")
    test.save(tmp_path / "test.csv")
    few = ["--replicates", "40"]
    done = run("measure", tmp_path / "test.csv", *few, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["labels"]) == set(test.names)
    gate = run("measure", tmp_path / "test.csv", "--no-intervals", "--fail-if", "positive_ece > 0")
    assert gate.exit_code == 1
    assert f"in {test.names[0]}" in gate.stderr
    saved, out = tmp_path / "c.json", tmp_path / "out.parquet"
    how = ["--method", "beta", "--option", "shrinkage=5", "--save", saved]
    how += ["--onnx", tmp_path / "c.onnx", "--apply", tmp_path / "test.csv", "--out", out]
    done = run("calibrate", "--fit", tmp_path / "fit.npz", *how, *few)
    assert done.exit_code == 0, done.stderr
    assert "mean over 3 labels, test.csv" in done.stdout
    by_hand = MultiLabelCalibrator(method="beta", shrinkage=5).fit(fit).transform(test)
    assert np.allclose(calibrant.load(out).scores, by_hand.scores)
    again = tmp_path / "again.npz"
    done = run("calibrate", "--load", saved, "--apply", tmp_path / "test.csv", "--out", again, *few)
    assert done.exit_code == 0, done.stderr
    assert np.allclose(calibrant.load(again).scores, by_hand.scores)
    done = run("calibrate", "--fit", tmp_path / "fit.npz", "--save", saved, *few)
    assert "out of fold" in done.stdout  # the usual method, where none is named
    assert calibrant.load_calibrator(saved).method == "platt"
    for bad, words in (
        (["compare", tmp_path / "fit.npz", tmp_path / "test.csv"], "one label per sample"),
        (["decompose", tmp_path / "fit.npz"], "one label per sample"),
        (["measure", tmp_path / "fit.npz", "--by", "x"], "by needs"),
        (["measure", tmp_path / "fit.npz", "--positive", "1"], "belongs to one label"),
        (["report", tmp_path / "fit.npz", "--positive", "1"], "belongs to one label"),
        (["calibrate", "--fit", tmp_path / "fit.npz", "--method", "vector"], "method must"),
    ):
        done = run(*bad)
        assert done.exit_code == 2, bad
        assert words in done.stderr
    single = Predictions(probs=[[0.5, 0.5]] * 4, labels=[0, 1, 0, 1])
    single.save(tmp_path / "one.npz")
    done = run("calibrate", "--fit", tmp_path / "one.npz", "--option", "shrinkage=5")
    assert done.exit_code == 2
    assert "belongs to several labels" in done.stderr


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(part) for part in arguments])
