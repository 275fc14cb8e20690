"""Predictions and Confidences: what they accept, refuse, keep and compute."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from calibrant import Confidences, InputError, Predictions, Scores, load, measure, metrics
from calibrant._core import arrays as core_arrays
from calibrant.streaming import Accumulator
from tests.conftest import draw

Z = np.zeros((4, 3), np.float32)
Y = np.array([0, 1, 2, 0])


def changed(value: float, where: object = (0, 0)) -> np.ndarray:
    z = Z.copy()
    z[where] = value
    return z


REFUSED = {
    "NaN": ({"logits": changed(np.nan), "labels": Y}, "must not hold NaN; got nan in row 0"),
    "+inf": ({"logits": changed(np.inf, (2, 1)), "labels": Y}, "must not hold [+]inf.*row 2"),
    "row of -inf": (
        {"logits": changed(-np.inf, 1), "labels": Y},
        "finite entry.*row 1",
    ),
    "NaN among many classes": (
        {"logits": np.where(np.arange(4000).reshape(4, 1000) == 3777, np.nan, 0.0), "labels": Y},
        "NaN.*row 3",
    ),
    "empty": ({"logits": Z[:0], "labels": Y[:0]}, "at least one sample"),
    "one class": ({"logits": Z[:, :1], "labels": Y * 0}, "K >= 2"),
    "label too large": ({"logits": Z, "labels": Y + 2}, r"lie in 0 … 2; got 2 … 4"),
    "negative label": ({"logits": Z, "labels": Y - 1}, r"lie in 0 … 2; got -1 … 1"),
    "float labels": (
        {"logits": Z, "labels": Y + 0.0},
        "must be integers; got dtype float64",
    ),
    "lengths differ": ({"logits": Z, "labels": Y[:3]}, r"shape \(4,\).*got shape \(3,\)"),
    "2-d labels": ({"logits": Z, "labels": np.eye(4, 3, dtype=int)}, "got shape"),
    "both": ({"logits": Z, "probs": Z + 1 / 3, "labels": Y}, "exactly one of the two; got both"),
    "neither": ({"labels": Y}, "exactly one of the two; got neither"),
    "sum": ({"probs": Z + 0.5, "labels": Y}, "must sum to 1.*got 1.5 in row 0"),
    "negative": ({"probs": np.array([[1.5, -0.5, 0.0]] * 4), "labels": Y}, r"lie in \[0, 1\]"),
    "NaN probability": ({"probs": changed(np.nan), "labels": Y}, r"lie in \[0, 1\]; got nan"),
    "objects": ({"logits": Z.astype(object), "labels": Y}, "must hold real numbers"),
    "strings": ({"logits": Z.astype(str), "labels": Y}, "must hold real numbers"),
    "complex": ({"logits": Z.astype(complex), "labels": Y}, "must hold real numbers"),
    "1-d": ({"logits": Z[:, 0], "labels": Y}, "both columns, prob_0 and prob_1 .*from_binary"),
    "3-d": ({"logits": Z[None], "labels": Y}, "shape"),
    "ragged": ({"logits": [[1.0, 2.0], [3.0]], "labels": [0, 1]}, "must be one array"),
    "names without classes": (
        {"logits": Z, "labels": list("abca")},
        r"Name all in the order of the columns: classes=",
    ),
    "objects as labels": ({"logits": Z, "labels": np.array(["a", None, 1, 0], object)}, "integers"),
    "unknown name": (
        {"logits": Z, "labels": ["cat", "dog", "catt", "cat"], "classes": ["cat", "dog", "owl"]},
        "Did you mean 'cat'",
    ),
    "too few classes": ({"logits": Z, "labels": Y, "classes": ["a", "b"]}, "3 different names"),
    "equal classes": ({"logits": Z, "labels": Y, "classes": ["a", "b", "a"]}, "2 different"),
    "classes in one string": ({"logits": Z, "labels": Y, "classes": "abc"}, "list of names"),
    "meta": ({"logits": Z, "labels": Y, "meta": {"a": object()}}, "JSON"),
    "meta NaN": ({"logits": Z, "labels": Y, "meta": {"a": float("nan")}}, "JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_sentence(name: str) -> None:
    arguments, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as error:
        Predictions(**arguments)
    assert "; got" in str(error.value)  # what came, after the rule
    assert str(error.value)[-1] in ".?"  # and what to do next


def test_minus_infinity_is_a_legal_logit() -> None:
    p = Predictions(logits=[[0.0, -np.inf, 1.0], [-np.inf, -np.inf, 2.0]], labels=[0, 1])
    assert p.probs[0, 1] == 0
    assert p.confidence[1] == 1
    assert p.odds_against[1] == 0
    assert p.entropy[1] == 0
    assert p.label_log_prob[1] == -np.inf


def test_is_frozen() -> None:
    p = Predictions(logits=Z, labels=Y)
    with pytest.raises(AttributeError, match="frozen"):
        p.labels = Y
    with pytest.raises(AttributeError, match="frozen"):
        del p.labels
    for array in (p.logits, p.labels, p.confidence, p.correct, p.entropy, p.predicted):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        p.meta["a"] = 1


def test_scores_are_not_copied_and_columns_are_kept_at_order_n() -> None:
    z, labels = draw(500, 40)
    p = Predictions(logits=z, labels=labels)
    assert np.shares_memory(p.logits, z)
    assert p.confidence.base is p.confidence.base
    kept = sum(a.nbytes for a in vars(p).values() if isinstance(a, np.ndarray) and a.base is None)
    p.confidence, p.probs, p.log_probs  # noqa: B018 - computed; the matrices must not stay
    columns = [getattr(p._summary, f.name) for f in dataclasses.fields(p._summary)]
    assert all(column.shape == (500,) for column in columns)
    again = sum(a.nbytes for a in vars(p).values() if isinstance(a, np.ndarray) and a.base is None)
    assert again == kept


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("classes", "spread"), [(2, 3), (5, 60), (12, 20), (33, 8), (900, 2)])
def test_confidence_agrees_with_extended_precision(classes: int, spread: float, dtype: str) -> None:
    """To 1e-6 relative, and 1 - confidence too, down to 1e-200."""
    z, labels = draw(300, classes, spread=spread, dtype=dtype)
    z[0], z[1], z[2, 1:] = z[0] - 55, z[1] + 90, -np.inf
    labels[2] = 0
    p = Predictions(logits=z, labels=labels)
    wide, rows = z.astype(np.longdouble), np.arange(300)
    top = z.argmax(axis=1)
    terms = np.exp(wide - wide[rows, top][:, None])
    terms[rows, top] = 0
    s = terms.sum(axis=1).astype(np.float64)
    assert (p.predicted == top).all()
    np.testing.assert_allclose(p.odds_against, s, rtol=1e-6, atol=1e-250)
    np.testing.assert_allclose(p.confidence, 1 / (1 + s), rtol=1e-6)
    log_probs = (wide - wide[rows, top][:, None]) - np.log1p(s)[:, None]
    with np.errstate(invalid="ignore"):
        label = log_probs[rows, labels].astype(np.float64)
    np.testing.assert_allclose(p.label_log_prob, label, rtol=1e-6, atol=1e-6)
    tolerance = 1e-12 if dtype == "float64" else 2e-6
    np.testing.assert_allclose(p.log_probs, log_probs.astype(np.float64), rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(p.probs.sum(axis=1), 1, rtol=1e-5)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 30), st.integers(2, 40)),
        elements=st.floats(-1e4, 1e4, width=32),
    ),
    st.integers(0, 2**32 - 1),
)
def test_columns_are_always_sound(z: np.ndarray, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, z.shape[1], len(z))
    p = Predictions(logits=z, labels=labels)
    assert ((p.confidence >= 1 / z.shape[1] - 1e-6) & (p.confidence <= 1)).all()
    assert ((p.entropy >= 0) & (p.entropy <= np.log(z.shape[1]) + 1e-5)).all()
    assert ((p.brier_terms >= 0) & (p.brier_terms <= 2 + 1e-6)).all()
    assert (p.label_log_prob <= 0).all()
    assert np.isfinite(p.label_log_prob).all()
    assert (p.correct == (z.argmax(axis=1) == labels)).all()


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:

    z, labels = draw(4000, 300)
    one = Predictions(logits=z, labels=labels)
    monkeypatch.setattr(core_arrays, "PARALLEL_ELEMENTS", 10**12)
    monkeypatch.setattr(core_arrays, "CHUNK_ELEMENTS", 7000)
    other = Predictions(logits=z, labels=labels)
    for name in (f.name for f in dataclasses.fields(one._summary)):
        assert (getattr(one._summary, name) == getattr(other._summary, name)).all(), name


def test_integer_and_tensor_input() -> None:
    assert Predictions(logits=[[1, 2], [3, 4]], labels=[0, 1]).probs.dtype == np.float64
    p = Predictions(logits=torch.zeros(2, 3, dtype=torch.bfloat16), labels=torch.tensor([0, 1]))
    assert p.num_classes == 3
    assert Predictions(probs=np.full((2, 4), 0.25, np.float16), labels=[0, 1]).num_samples == 2


def test_names_as_labels() -> None:
    p = Predictions(logits=np.eye(3), labels=["owl", "cat", "owl"], classes=["cat", "dog", "owl"])
    assert p.labels.tolist() == [2, 0, 2]
    assert p.classes == ("cat", "dog", "owl")


def test_binary() -> None:
    z = np.array([-2.0, 0.5, 30.0])
    p = Predictions.from_binary(logits=z, labels=[0, 1, 1])
    np.testing.assert_allclose(p.probs[:, 1], 1 / (1 + np.exp(-z)))
    q = Predictions.from_binary(probs=[0.25, 1.0], labels=np.array([True, False]))
    assert q.probs.tolist() == [[0.75, 0.25], [0.0, 1.0]]
    for arguments, message in (
        ({"logits": z, "probs": z, "labels": Y[:3]}, "exactly one"),
        ({"logits": Z, "labels": Y}, r"shape \(N,\)"),
        ({"probs": [0.5, 1.5], "labels": [0, 1]}, r"lie in \[0, 1\]"),
    ):
        with pytest.raises(InputError, match=message):
            Predictions.from_binary(**arguments)


def test_split_and_take() -> None:
    z, labels = draw(101, 4)
    p = Predictions(logits=z, labels=labels, meta={"net": "x"})
    a, b = p.split(0.25, seed=3)
    assert (len(a), len(b)) == (25, 76)
    together = np.concatenate([a.logits, b.logits])
    assert sorted(map(tuple, together)) == sorted(map(tuple, z))
    assert (p.split(0.25, seed=3)[0].labels == a.labels).all()
    assert a.meta == {"net": "x"}
    assert len(p.split(0.999, seed=0)[1]) == 1
    assert len(p.take(labels == 1)) == (labels == 1).sum()
    with pytest.raises(InputError, match="fraction"):
        p.split(25, seed=0)
    with pytest.raises(InputError, match="two samples"):
        p.take([0]).split(0.5, seed=0)


COLUMNS = (
    *("scores", "labels", "predicted", "correct", "confidence", "odds_against", "label_log_prob"),
    *("brier_terms", "entropy", "clusters", "weights"),
)


def columns_of(p: Predictions) -> list[np.ndarray]:
    return [getattr(p, name) for name in COLUMNS]


@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_rows_taken_and_other_scores_are_what_the_constructor_makes(
    classes: int, kind: str
) -> None:
    """Rows that are known to be good are not checked again, other scores are: the same columns."""
    z, labels = draw(2000, classes)
    rng = np.random.default_rng(1)
    belongs = {"clusters": rng.integers(9, size=2000), "weights": rng.random(2000) + 0.5}
    given = Predictions(logits=z, labels=labels).probs if kind == "probs" else z
    p = Predictions(
        **{kind: given}, labels=labels, classes=list(map(str, range(classes))), **belongs
    )
    rows = rng.permutation(2000)[:700]
    some = {name: values[rows] for name, values in belongs.items()}
    made = Predictions(**{kind: given[rows]}, labels=labels[rows], **some)
    taken = p.take(rows)
    other = Predictions(logits=z, labels=labels).take(rows).with_scores(kind, given[rows])
    for found, expected in zip(columns_of(taken), columns_of(made), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert not found.flags.writeable
    for found, expected in zip(columns_of(other)[:9], columns_of(made)[:9], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert metrics.classwise_ece(taken) == metrics.classwise_ece(made)
    assert taken.with_scores(kind, given[rows]).belonging is taken.belonging


def test_other_scores_are_checked_and_no_more() -> None:
    z, labels = draw(2000, 40)
    p = Predictions(logits=z, labels=labels)
    assert not p.with_scores("logits", z * 2).swept
    assert not p.take(np.arange(50)).swept
    bad = z.copy()
    bad[1234, 5] = np.nan
    for kind, scores, message in (
        ("logits", bad, "must not hold NaN; got nan in row 1234"),
        ("probs", z, "must lie in"),
        ("logits", z[:5], r"labels must have shape \(5,\)"),
        ("logits", z[:, :2], "labels must lie in 0 … 1"),
        ("logits", z[0], r"shape \(N, K\)"),
        ("logits", z.astype(str), "must hold real numbers"),
    ):
        with pytest.raises(InputError, match=message):
            p.with_scores(kind, scores)
    for indices in (np.array(3), np.zeros((2, 2), dtype=int)):
        with pytest.raises(InputError, match=r"shape \(N, K\)"):
            p.take(indices)


CONFIDENCES_REFUSED = [
    ({"confidence": [], "correct": []}, "N >= 1"),
    ({"confidence": [0.5], "correct": [True, False]}, ", like confidence"),
    ({"confidence": [1.5], "correct": [True]}, r"lie in \[0, 1\]"),
    ({"confidence": [np.nan], "correct": [True]}, r"lie in \[0, 1\]"),
    ({"confidence": [0.5], "correct": [2]}, "0 and 1"),
    ({"confidence": [0.5], "correct": [0.5]}, "0 and 1"),
]


@pytest.mark.parametrize(("arguments", "message"), CONFIDENCES_REFUSED)
def test_confidences_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Confidences(**arguments)


def test_confidences() -> None:
    c = Confidences(confidence=np.array([0.0, 1.0, 0.5], np.float32), correct=[0, 1, 1])
    assert c.correct.dtype == bool
    assert c.odds_against.tolist() == [np.inf, 0.0, 1.0]
    assert len(c.take([0, 2])) == 2
    assert repr(c) == "Confidences(3 samples)"
    with pytest.raises(AttributeError, match="frozen"):
        c.correct = None


def test_names_as_data_frames_give_them() -> None:
    names = np.array(["dog", "cat", "cat", "owl"], dtype=object)
    p = Predictions(logits=Z, labels=names, classes=["cat", "dog", "owl"])
    assert p.labels.tolist() == [1, 0, 0, 2]
    with pytest.raises(InputError, match="got names without classes"):
        Predictions(logits=Z, labels=names)


@pytest.mark.parametrize(
    ("correct", "got"),
    [
        ([1, 0, 2], "got 2 in row 2"),
        ([-1, 0, 1], "got -1 in row 0"),
        ([0.0, 1.0, 1.0], "got dtype float64"),
    ],
)
def test_correct_names_value_and_row(correct: list, got: str) -> None:
    with pytest.raises(InputError, match=got):
        Confidences(confidence=[0.5] * 3, correct=correct)


@pytest.mark.parametrize("seed", [None, -1, 1.5])
def test_split_checks_its_seed(seed: object) -> None:
    with pytest.raises(InputError, match="seed must be a whole number"):
        Predictions(logits=Z, labels=Y).split(0.5, seed=seed)


def test_one_sample_is_one_sample() -> None:
    assert repr(Predictions(logits=Z[:1], labels=Y[:1])).startswith("Predictions(1 sample, ")
    assert repr(Confidences(confidence=[0.5], correct=[1])) == "Confidences(1 sample)"


# --- scores without labels --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("classes", [2, 5, 40])
def test_scores_have_what_predictions_have_but_the_labels(kind: str, classes: int) -> None:
    z, labels = draw(300, classes)
    scores = {kind: Predictions(logits=z, labels=labels).probs if kind == "probs" else z}
    p, s = Predictions(**scores, labels=labels), Scores(**scores)
    for name in ("predicted", "confidence", "odds_against", "entropy", "order", "log_probs"):
        np.testing.assert_array_equal(getattr(s, name), getattr(p, name), err_msg=name)
    assert (s.num_samples, s.num_classes, s.kind) == (p.num_samples, p.num_classes, p.kind)
    for name in ("labels", "correct", "label_log_prob", "brier_terms", "split"):
        assert not hasattr(s, name)
    part = s.take([3, 1])
    assert type(part) is Scores
    np.testing.assert_array_equal(part.scores, s.scores[[3, 1]])
    np.testing.assert_array_equal(s.slab(slice(2, 9)).confidence, s.confidence[2:9])


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv", ".safetensors"])
def test_scores_are_saved_without_labels(tmp_path: Path, ending: str) -> None:
    z, labels = draw(20, 3)
    s = Scores(logits=z, classes=["a", "b", "c"], meta={"from": "here"})
    s.save(tmp_path / f"s{ending}")
    again = load(tmp_path / f"s{ending}")
    assert type(again) is Scores
    assert (again.classes, dict(again.meta)) == (s.classes, {"from": "here"})
    np.testing.assert_array_equal(again.scores.astype(s.scores.dtype), s.scores)
    with pytest.raises((InputError, FileNotFoundError), match="labels"):
        Predictions.load(tmp_path / f"s{ending}")
    Predictions(logits=z, labels=labels).save(tmp_path / f"p{ending}")
    assert type(load(tmp_path / f"p{ending}")) is Predictions


def test_scores_are_not_measured() -> None:
    s = Scores(logits=draw(20, 3)[0])
    with pytest.raises(InputError, match="Predictions"):
        measure(s)
    with pytest.raises(InputError, match="Predictions"):
        Accumulator(3).update(s)


def test_taking_nothing_is_an_error() -> None:
    p = Predictions(logits=np.eye(3), labels=[0, 1, 2])
    for nothing in ([], np.zeros(0, dtype=int), np.zeros(3, dtype=bool), p.confidence > 2):
        with pytest.raises(InputError, match="indices must name at least one sample; got none"):
            p.take(nothing)
    assert p.take([0]).num_samples == p.take([False, True, False]).num_samples == 1
