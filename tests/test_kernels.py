"""The compiled row kernels against their NumPy reference, and what they refuse."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

import calibrant
from calibrant import InputError, Predictions, Scores, metrics
from calibrant._core import arrays, compiled, compiled_streams, compiled_sweeps
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_draws import draw_labels
from calibrant._core.row_sweeps import RowSummary
from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators._affine_problem import Problem, row_losses
from calibrant.inference import _classwise, _tilts
from calibrant.inference._resampling import STRENGTHS
from calibrant.metrics._binning import width_index
from calibrant.metrics._rank_sums import HARMONIC_TABLE
from calibrant.metrics._sample import Ranked
from calibrant.streaming import Accumulator, _clusters, _counts
from tests.command import call
from tests.conftest import draw

try:
    BUILT = importlib.import_module("calibrant._core._rows")
except ImportError:  # an installation without a compiler
    BUILT = None
needs_extension = pytest.mark.skipif(BUILT is None, reason="the extension is not built")
COLUMNS = ("odds_against", "confidence", "label_log_prob", "brier_terms", "entropy")
SHAPES = [(300, 2, 3), (301, 5, 60), (67, 10, 4), (40, 32, 8), (33, 33, 30), (50, 1000, 2)]


@contextlib.contextmanager
def kernel(name: str) -> Iterator[None]:
    """Run with the kernels of this name, then with those before."""
    before = os.environ.get(compiled.VARIABLE)
    os.environ[compiled.VARIABLE] = name
    compiled_rows.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(compiled.VARIABLE)
        if before is not None:
            os.environ[compiled.VARIABLE] = before
        compiled_rows.cache_clear()


def columns(p: Predictions) -> dict[str, np.ndarray]:
    return {name: getattr(p, name) for name in (*COLUMNS, "predicted", "correct")}


def cases() -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Kind, scores and labels of every shape and dtype, with extreme rows among them."""
    for rows, classes, spread in SHAPES:
        for dtype in ("float16", "float32", "float64"):
            z, labels = draw(rows, classes, spread=spread, dtype=dtype)
            z[0], z[1], z[2, 1:], z[3] = z[0] - 55, z[1] + 90, -np.inf, z[3, 0]
            labels[2] = 0
            yield f"{classes} logits {dtype}", "logits", z, labels
            probs = Predictions(logits=z.astype(np.float64), labels=labels).probs.astype(dtype)
            probs[4] = np.eye(classes)[1]
            if dtype != "float16":
                yield f"{classes} probs {dtype}", "probs", probs, labels


@needs_extension
def test_columns_agree_with_the_reference() -> None:
    for name, kind, scores, labels in cases():
        with kernel("numpy"):
            expected = columns(Predictions(**{kind: scores}, labels=labels))
        with kernel("c"):
            found = columns(Predictions(**{kind: scores}, labels=labels))
        exact = kind == "probs" or scores.dtype == np.float64 or scores.shape[1] <= 8
        for column, value in found.items():
            if column in ("predicted", "correct"):
                assert (value == expected[column]).all(), (name, column)
                continue
            rtol, atol = (1e-12, 1e-14) if exact else (1e-6, 4e-6)
            atol = 0 if column == "odds_against" else atol
            np.testing.assert_allclose(
                value, expected[column], rtol=rtol, atol=atol, err_msg=f"{name} {column}"
            )


@needs_extension
def test_odds_keep_their_digits() -> None:
    """The contract: 3e-7 relative down to 1e-300, also where equal terms round alike."""
    rng = np.random.default_rng(0)
    for classes, step in (
        (9, 600),
        (32, 600),
        (32, 0),
        (40, 600),
        (1000, 600),
        (1000, 1),
        (5000, 0),
    ):
        z = (rng.standard_normal((60, classes)) * 3).astype(np.float32)
        z[30:] = np.round(z[30:])
        z[:, 0] = z.max(axis=1) + rng.uniform(0, step, 60)
        wide = z.astype(np.longdouble)
        terms = np.exp(wide - wide[:, :1])
        s = terms[:, 1:].sum(axis=1)
        with kernel("c"):
            odds = Predictions(logits=z, labels=np.zeros(60, int)).odds_against
        there = s > 1e-300
        assert (np.abs(odds - s)[there] <= 3e-7 * s[there]).all(), (classes, step)


@needs_extension
def test_odds_of_equal_logits_keep_their_digits() -> None:
    """All terms are then the same number, whose sums round in the same direction."""
    for classes in (10, 19, 32, 64, 100, 1000, 5000):
        z = np.zeros((200, classes), dtype=np.float32)
        z[:, 1] = np.linspace(0, 14, 200)  # the runner-up, to which terms are relative
        z[:, 0] = 15
        wide = z.astype(np.longdouble)
        s = np.exp(wide - wide[:, :1])[:, 1:].sum(axis=1)
        for which, most in (("c", 2e-7), ("numpy", 6e-7)):
            with kernel(which):
                odds = Predictions(logits=z, labels=np.zeros(200, int)).odds_against
            assert (np.abs(odds - s) <= most * s).all(), (classes, which)


@needs_extension
def test_long_rows_keep_their_digits_wherever_they_lie() -> None:
    """Rows with and without a base for their terms, and at either side of what tells them apart."""
    rng = np.random.default_rng(1)
    for classes in (33, 47, 64, 65, 250, 1000):
        offsets = np.concatenate([np.arange(-60, 100, 5.0), np.linspace(39, 41, 18)])
        z = np.concatenate([rng.standard_normal((50, classes)) * spread for spread in (1, 4, 12)])
        z = (z + np.tile(offsets, 3)[:, None]).astype(np.float32)
        rows = np.arange(len(z))
        z[rows, rows % classes] += rng.uniform(0, 40, len(z)).astype(np.float32)
        masked = rng.random(z.shape) < 0.5
        z[::4][masked[::4]] = -np.inf
        z[::4, :2] = np.maximum(z[::4, :2], -100)
        labels = z.argmax(axis=1)
        wide = z.astype(np.longdouble)
        gaps = wide - wide[rows, labels][:, None]
        terms = np.exp(gaps)
        terms[rows, labels] = 0
        s = terms.sum(axis=1)
        entropy = np.log1p(s) - (terms * np.where(terms > 0, gaps, 0)).sum(axis=1) / (1 + s)
        with kernel("c"):
            p = Predictions(logits=z, labels=labels)
        assert (p.predicted == labels).all(), classes
        assert (np.abs(p.odds_against - s) <= 3e-7 * s).all(), classes
        assert (np.abs(p.entropy - entropy) <= 1e-6 * entropy).all(), classes


@needs_extension
def test_the_first_of_equal_classes_is_predicted_wherever_they_are() -> None:
    for classes in (33, 64, 71, 300):
        z = np.full((4 * classes, classes), -1, dtype=np.float32)
        first = np.arange(len(z)) % classes
        for row, at in enumerate(first):
            again = [min(classes - 1, at + step) for step in (0, 1, 32, 64)][row // classes]
            z[row, again] = z[row, at] = 2
        zeros = z - 2
        zeros[np.arange(len(z)), first] = -0.0  # equal to 0.0
        with kernel("c"):
            for each in (z, zeros):
                assert (Scores(logits=each).predicted == first).all(), classes


@needs_extension
def test_a_certain_row_leaves_the_tables_of_the_others_alone() -> None:
    for classes in (33, 48, 64, 96):
        z, labels = draw(2000, classes)
        certain = np.arange(7, 2000, 8)
        z[certain] = -np.inf
        z[certain, 3] = 0
        found = {}
        for which in ("numpy", "c"):
            with kernel(which):
                counts = metrics._classwise.classwise_counts(Predictions(logits=z, labels=labels))
                found[which] = counts.prob.values
        np.testing.assert_allclose(found["c"], found["numpy"], rtol=1e-6, atol=1e-7)


@needs_extension
def test_classwise_tables_and_temperatures_agree_with_the_reference() -> None:
    for name, kind, scores, labels in cases():
        found = {}
        for which in ("numpy", "c"):
            with kernel(which):
                p = Predictions(**{kind: scores}, labels=labels)
                counts = metrics._classwise.classwise_counts(p)
                found[which] = counts.above[:, 1:], counts.hits, counts.prob.values
        assert (found["c"][0] == found["numpy"][0]).all(), name
        assert (found["c"][1] == found["numpy"][1]).all(), name
        np.testing.assert_allclose(found["c"][2], found["numpy"][2], atol=2e-6, err_msg=name)
    for classes in (3, 20, 200):
        for dtype in ("float32", "float64"):
            z, labels = draw(400, classes, dtype=dtype)
            values = []
            for which in ("numpy", "c"):
                with kernel(which):
                    p = Predictions(logits=z, labels=labels)
                    values.append(TemperatureScaling().fit(p).temperature_)
            assert values[0] == pytest.approx(values[1], rel=1e-9)


@needs_extension
def test_threads_chunks_and_layouts_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for classes in (5, 10, 19, 32, 300):
        z, labels = draw(3000, classes)
        with kernel("c"):
            one = columns(Predictions(logits=z, labels=labels))
            table = metrics.classwise_ece(Predictions(logits=z, labels=labels))
            monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 7000)
            monkeypatch.setattr(arrays, "PARALLEL_ELEMENTS", 1)
            room = np.empty((3000, 2 * classes + 1), dtype=np.float32)
            room[:, 1::2] = z
            shifted = np.empty(z.nbytes + 1, dtype=np.uint8)[1:].view(np.uint8)
            odd = np.frombuffer(shifted.data, dtype=np.float32).reshape(z.shape)
            odd[...] = z
            for other in (z, np.asfortranarray(z), room[:, 1::2], z[::-1].copy()[::-1], odd):
                again = columns(Predictions(logits=other, labels=labels))
                for name, column in again.items():
                    assert (column == one[name]).all(), name
                assert metrics.classwise_ece(Predictions(logits=other, labels=labels)) == table
            swapped = Predictions(logits=z.astype(">f4"), labels=labels)
            assert (swapped.confidence == one["confidence"]).all()
        monkeypatch.undo()


@needs_extension
def test_instruction_sets_give_the_same_bits() -> None:
    assert BUILT is not None
    best = BUILT.instructions()
    known = {}
    for level in ("baseline", "avx2", "avx512"):
        try:
            BUILT.instructions(level)
        except ValueError:
            continue
        with kernel("c"):
            known[level] = [
                columns(Predictions(**{kind: scores}, labels=labels))
                for _, kind, scores, labels in cases()
            ]
    BUILT.instructions(best)
    for level, found in known.items():
        for mine, others in zip(found, known[best], strict=True):
            for name, column in mine.items():
                if level == "baseline":  # without fused multiply-add on x86
                    np.testing.assert_allclose(column, others[name], rtol=1e-6, atol=1e-6)
                else:
                    assert (column == others[name]).all(), (level, name)


@needs_extension
def test_sums_and_histograms_of_streams_are_those_of_the_reference() -> None:
    """Whole numbers, so the same to the last one: edges of bins, ties and subnormals included."""
    rng = np.random.default_rng(5)
    confidence = np.concatenate([rng.random(999), np.arange(16) / 15, [2.0**-53, 5e-324, 0.1]])
    values = np.concatenate([confidence, 1023 * rng.random(50), np.arange(9) * 2.0**-53])
    odds = np.concatenate([np.exp(rng.uniform(-80, 80, 1000)), [0.0, np.inf, 1.0, 5e-324]])
    assert BUILT is not None
    for part in (values, values[:0], values[:1], values[::2], values[-9:]):
        units = sum(round(Fraction(float(value)) * 2**52) for value in part)
        assert compiled_streams.exact_sum(BUILT, part) == units
        with kernel("numpy"):
            assert _counts.exact_sum(part) == units
    for large in (1024.0, np.inf, np.nan, -np.inf):
        found = compiled_streams.exact_sum(BUILT, np.array([0.5, large]))
        assert found is None or large < 0
    assert _counts.exact_sum(np.array([0.5, 1024.0])) == 2**51 + 2**62
    for name, given in (("width", confidence), ("odds", 1 / (1 + odds))):
        correct = rng.random(len(given)) < 0.5
        mine, theirs = (_counts.Cells(15 if name == "width" else _counts.NUM_CELLS) for _ in "ab")
        if name == "width":
            index = width_index(given, 15)
            compiled_streams.add_by_width(BUILT, given, correct, mine.tables, 52)
        else:
            index = _counts.cell_of(odds)
            cells = _counts._FIRST_CELL, _counts._CELL_SHIFT, 52
            compiled_streams.add_by_odds(BUILT, (odds, given, correct), cells, mine.tables)
        theirs.add_samples(index, correct, _counts._halves(given))
        for a, b in zip(mine.tables, theirs.tables, strict=True):
            assert (a == b).all(), name


@needs_extension
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_slab_adds_what_its_columns_add(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one pass or column by column: large losses and impossible labels included."""
    rng = np.random.default_rng(8)
    for num_classes, scale in ((2, 1), (7, 40), (19, 3), (32, 30)):
        logits = (scale * rng.normal(size=(1300, num_classes))).astype(dtype)
        logits[::7, 0] = -np.inf
        p = Predictions(logits=logits, labels=rng.integers(0, num_classes, 1300))
        states = []
        for narrow in (32, 0):
            monkeypatch.setattr(_counts, "NARROW_CLASSES", narrow)
            found = Accumulator(num_classes)
            found.update(p)
            states.append((found.result(), found.streamed().moments, found._counts.classwise.count))
        for one, other in zip(*states, strict=True):
            np.testing.assert_equal(one, other)


@needs_extension
def test_what_slabs_refuse() -> None:
    def added(logits: np.ndarray, labels: list[int], **changes: object) -> int:
        assert BUILT is not None
        size, classes = logits.shape
        one, cells = np.zeros(15 * classes, np.int64), np.zeros(30, np.int64)
        given = {"ignored": 0, "ignores": False, "drop": 14, "code": 0, "sums": np.zeros(14, int)}
        given |= {"layout": _clusters.cluster_layout(1), **changes}
        columns = np.empty(size, np.int32), np.empty(size), np.empty(size)
        return BUILT.add_slab(
            logits,
            np.array(labels),
            given["ignored"],
            given["ignores"],
            15,
            *(one, one.copy(), one.copy()),
            52,
            *(cells, cells.copy(), cells.copy()),
            given["sums"],
            *columns,
            512,
            given["drop"],
            given["layout"],
            given["code"],
            None,
        )

    rows = np.zeros((3, 2))
    assert added(rows, [0, 1, 1]) == 3
    assert added(rows, [0, 9, 1], ignored=9, ignores=True) == 2
    assert added(rows, [0, 9, 1]) == added(rows, [0, -1, 1]) == -1
    bad = np.array([[0.0, 1.0], [np.nan, 0.0], [0.0, 1.0]])
    assert added(bad, [0, 1, 1]) == -1
    assert added(bad, [0, 9, 1], ignored=9, ignores=True) == 2
    for changes in ({"drop": 32}, {"code": 1}, {"code": -1}, {"sums": np.zeros(13, int)}):
        with pytest.raises(ValueError, match=r"sums must|sizes in range"):
            added(rows, [0, 1, 1], **changes)
    usual = _clusters.cluster_layout(1)
    for place, value in ((0, 100), (2, 3), (0, 1 << 29), (1, 0), (6, 60), (7, 2.0**31), (7, -1.0)):
        layout = (*usual[:place], value, *usual[place + 1 :])
        with pytest.raises(ValueError, match="in range"):
            added(rows, [0, 1, 1], layout=layout)
    with pytest.raises(ValueError, match="few classes"):
        added(np.zeros((3, 33)), [0, 1, 1])
    with pytest.raises(ValueError, match="labels must"):
        added(rows, [0, 1])


@needs_extension
def test_sums_by_cluster_are_those_of_the_reference() -> None:
    """Whole numbers again; losses that are infinite or cut off, one to many clusters, any order."""
    rng = np.random.default_rng(6)
    n = 5000
    odds = np.exp(rng.uniform(-90, 80, n))
    loss = np.where(rng.random(n) < 0.01, np.inf, rng.exponential(9, n) ** 5)
    columns = (_counts.cell_of(odds), rng.random(n) < 0.5, 1 / (1 + odds))
    columns = (*columns, loss, rng.random(n), rng.exponential(1, n))
    names = rng.choice(np.array(["a", "b", "c"]), n)
    for clusters in (np.zeros(n, int), np.sort(rng.integers(-9, 9, n)), names, np.arange(n)):
        slabs = [
            tuple(x[part] for x in (clusters, *columns))
            for part in (slice(0, 1), slice(1, 3100), slice(3100, n))
        ]
        found = {}
        for which in ("numpy", "c"):
            with kernel(which):
                sums = _clusters.ClusterSums()
                sums.add_rows(slabs)
            found[which] = sums.counts, sums.values.values, sums.sketch
        for mine, theirs in zip(found["c"], found["numpy"], strict=True):
            assert (mine == theirs).all()
        assert found["c"][0][:-1, 0].sum() == n
        assert found["c"][0][-1, 0] == np.isinf(loss).sum()


@needs_extension
def test_sums_of_vector_scaling_agree_with_the_reference() -> None:
    """Any number of classes and precision, large logits, negative scales, rows that weigh 0."""
    rng = np.random.default_rng(7)
    for classes in (2, 3, 8, 19, 100, 1000):
        for dtype in ("float32", "float64", "float16"):
            for on in ("logits", "log_probs"):
                z, labels = draw(150, classes, spread=8, dtype=dtype)
                z[0] *= 50
                p = Predictions(logits=z, labels=labels)
                weights = rng.integers(0, 3, 150).astype(float)
                problem = Problem(p, weights, 0.7, on, dense=False)
                theta = rng.normal(0, 1.5, 2 * classes)
                with kernel("numpy"):
                    expected = problem.gradient(theta), row_losses(problem, theta)
                with kernel("c"):
                    found = problem.gradient(theta), row_losses(problem, theta)
                    assert problem.compiled is not None
                for mine, theirs in zip(found, expected, strict=True):
                    scale = np.abs(theirs).max()
                    np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12 * scale)
    z[3, 1] = -np.inf  # 0 times minus infinity: left to NumPy
    assert (
        Problem(Predictions(logits=z, labels=labels), None, 1.0, on, dense=False).compiled is None
    )


@needs_extension
def test_sums_over_ranks_agree_with_the_reference() -> None:
    """Of one sample and of many resamples: ties, weights that are fractions, one outcome only."""
    rng = np.random.default_rng(2)
    confidence = np.sort(rng.random(200))
    draws = rng.multinomial(300, np.full(200, 1 / 200), size=6).astype(np.float64)
    right = rng.binomial(draws.astype(np.int64), confidence).astype(np.float64)
    right[4], right[5] = draws[4], 0
    many = HARMONIC_TABLE * rng.integers(0, 3, (2, 200)).astype(np.float64)
    names = ("auroc", "aupr_success", "aupr_error", "fpr95", "aurc", "eaurc")
    cases = [(draws, right), (draws[0], right[0]), (draws * 0.3, right * 0.3), (many, many / 4)]
    for count, hits in cases:
        for name in names:
            function = metrics.METRICS[name].function
            found = {}
            for which in ("numpy", "c"):
                with kernel(which):
                    found[which] = function(Ranked(confidence, count, hits))
            near = {"rtol": 1e-12, "atol": 1e-14, "err_msg": name}
            np.testing.assert_allclose(found["c"], found["numpy"], **near)
            rows = [function(Ranked(confidence, *row)) for row in zip(draws, right, strict=True)]
            if count is draws:
                np.testing.assert_allclose(found["numpy"], rows, **near)
    with kernel("c"):
        for recall in (0.5, 0.95, 0.8):
            ranked = Ranked(confidence, draws[0], right[0])
            kept = np.cumsum(right[0][::-1])[::-1] >= recall * right[0].sum() * (1 - 1e-12)
            wrong = (draws[0] - right[0])[np.flatnonzero(kept)[-1] :].sum()
            found = metrics.fpr95(ranked, recall=recall)
            assert found == pytest.approx(wrong / (draws[0] - right[0]).sum())


@needs_extension
def test_drawn_labels_are_those_of_the_reference() -> None:
    """Whole numbers, so exactly: one class that has it all, and lots at the edges, included."""
    rng = np.random.default_rng(3)
    assert BUILT is not None
    for classes in (2, 3, 17):
        probs = rng.dirichlet(np.full(classes, 0.5), (3, 40))
        probs[:, 0], probs[:, 1] = np.eye(classes)[0], np.eye(classes)[-1]
        uppers = np.cumsum(probs, axis=2)
        uppers[..., -1] = 1
        lots = rng.random((2, 40, 25))
        lots[:, :, 0], lots[:, :, 1] = 0, 0.5
        lots[0, :, 2] = uppers[0, :, 0] * (uppers[0, :, 0] < 1)
        cell = rng.integers(0, 5, (40, classes)) + 5 * np.arange(classes)
        mine, theirs = np.zeros((2, len(STRENGTHS), 25 * 5 * classes), dtype=np.float32)
        draw_labels(BUILT, mine, cell, uppers, lots, STRENGTHS)
        _classwise._add_changes(theirs, cell, uppers, lots)
        assert (mine == theirs).all()
        assert mine[0].sum() == 40 * 25


@needs_extension
def test_tilts_of_rows_are_those_of_the_reference() -> None:
    for name, kind, scores, labels in cases():
        found = {}
        for which in ("numpy", "c"):
            with kernel(which):
                p = Predictions(**{kind: scores}, labels=labels)
                chunks = list(_tilts.over_rows(p, 15, lambda *chunk: chunk))
                probs, cell = (np.concatenate([c[k] for c in chunks]) for k in (1, 2))
                factor = np.exp(np.sin(np.arange(cell.max() + 15 - cell.max() % 15))).reshape(
                    -1, 15
                )
                tilts = [
                    _tilts.Tilt(factor, slope, -3.0).of(probs, cell) for slope in (0.0, 0.7, -0.4)
                ]
                found[which] = probs, np.stack(tilts), cell
        for mine, theirs in zip(found["c"][:2], found["numpy"][:2], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-300, err_msg=name)
        apart = found["c"][2] != found["numpy"][2]  # on an edge, but for rounding
        steps = found["numpy"][0][apart] * 15
        assert (np.abs(steps - np.rint(steps)) < 1e-12).all(), name


@needs_extension
def test_top_label_of_maps_has_the_bits_of_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 3000)
    monkeypatch.setattr(arrays, "PARALLEL_ELEMENTS", 1)
    for classes, dtype in ((3, "float32"), (9, "float16"), (19, "float32"), (32, "float64")):
        maps = (rng.standard_normal((3, classes, 37, 11)) * 3).astype(dtype)
        labels = rng.integers(0, classes, (3, 37, 11))
        labels[rng.random(labels.shape) < 0.3] = 255
        labels[1] = 255  # a whole image is left out
        labels[2, 5:30] = 255
        maps[:, :, 5, :] = np.where(labels[:, None, 5] == 255, np.nan, maps[:, :, 5])
        for ignored in (255, None):
            if ignored is None:
                maps, labels = np.nan_to_num(maps), labels % classes
            with kernel("c"):
                p = Predictions(logits=maps, labels=labels, ignore_index=ignored)
                top = p.predicted, p.correct, p.odds_against, p.confidence
                assert not p.swept
                rows = p.sweep_columns()
            whole = rows.predicted, rows.correct, rows.odds, rows.confidence
            for found, expected in zip(top, whole, strict=True):
                assert (found == expected).all(), (classes, ignored)


@needs_extension
def test_what_the_top_label_refuses() -> None:
    assert BUILT is not None
    z, some, labels = np.zeros((30, 10), np.float32), np.arange(5) * 3, np.zeros(5, int)
    columns = [np.zeros(5, int), np.zeros(5, bool), np.zeros(5), np.zeros(5)]
    assert BUILT.top(z, some, labels, *columns) == -1
    assert BUILT.top(z, some[:0], None, *(column[:0] for column in columns)) == -1
    bad = z.copy()
    bad[[1, 6]] = np.nan  # the first is not looked at
    assert BUILT.top(bad, some, None, *columns) == 2
    for given in (
        (z, some[::-1].copy(), labels, *columns),
        (z, some * 3, labels, *columns),
        (z, some - 1, labels, *columns),
        (z, labels, labels, *columns),
        (z, some, labels + 10, *columns),
        (z, some, labels[1:], *columns),
        (z, some, labels, columns[0][1:], *columns[1:]),
        (np.zeros((30, 33), np.float32), some, labels, *columns),
    ):
        with pytest.raises(ValueError, match="must"):
            BUILT.top(*given)


@needs_extension
def test_what_tilts_refuse() -> None:
    assert BUILT is not None
    probs, cell, factor, out = np.full((4, 3), 1 / 3), np.zeros(12, int), np.ones(6), np.empty(12)
    assert BUILT.row_cells(probs, None, 2, out, cell) == -1
    assert cell.tolist() == [0, 2, 4] * 4
    fine = [probs, cell, 2, factor, 0.5, 0.0, 1e-9, out]
    assert BUILT.tilted(*fine) == -1
    for place, wrong in (
        (0, probs.astype(np.float32)),
        (0, np.asfortranarray(probs)),
        (1, cell + 6),
        (1, cell - 1),
        (1, cell[1:]),
        (2, 0),
        (2, 1 << 40),
        (3, factor[1:]),
        (6, 0.0),
        (7, out[1:]),
    ):
        with pytest.raises((ValueError, TypeError)):
            BUILT.tilted(*(wrong if k == place else x for k, x in enumerate(fine)))
    for given in (
        (probs[:, ::-1], None, 2, out, cell),
        (probs, np.ones(3), 2, out, cell),
        (probs, None, 0, out, cell),
        (probs, None, 2, out[1:], cell),
        (probs, None, 2, out, cell[1:]),
    ):
        with pytest.raises(ValueError, match="must"):
            BUILT.row_cells(*given)


@needs_extension
def test_bad_rows_are_found() -> None:
    assert BUILT is not None
    for classes in (2, 7, 10, 32, 33, 1000):
        for position in {0, 1, classes // 2, classes - 1}:
            for bad in (np.nan, np.inf, -np.nan):
                z = np.zeros((400, classes), dtype=np.float32)
                z[329, position] = bad
                z[335, 0] = np.nan
                for layout in (z, np.asfortranarray(z)):
                    with kernel("c"), pytest.raises(InputError, match="row 329"):
                        Predictions(logits=layout, labels=np.zeros(400, int))
                    with kernel("c"), pytest.raises(InputError, match="row 329"):
                        Scores(logits=layout)
                out = compiled_sweeps._parts(RowSummary.empty(400), slice(None))
                assert BUILT.logits(z, None, *out, *compiled_sweeps.NO_TABLES) == 329
        z = np.zeros((40, classes))
        z[11] = -np.inf
        with kernel("c"), pytest.raises(InputError, match=r"finite entry.*row 11"):
            Predictions(logits=z, labels=np.zeros(40, int))
        probs = np.full((40, classes), 1 / classes)
        probs[5, 0] += 0.1
        with kernel("c"), pytest.raises(InputError, match=r"must sum to 1.*row 5"):
            Predictions(probs=probs, labels=np.zeros(40, int))
        probs[3, :2] = (-0.1, 0.1 + 2 / classes)
        with kernel("c"), pytest.raises(InputError, match=r"lie in \[0, 1\].*row 3"):
            Predictions(probs=probs, labels=np.zeros(40, int))


@needs_extension
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_first_bad_row_is_found_whatever_its_neighbours(dtype: str) -> None:
    """A row is looked at while the one before it is added up, which may have one finite logit."""
    assert BUILT is not None
    for classes in (33, 64, 65, 100):
        for alone in ((), (3,), (4,), (3, 4, 5)):
            for at in (0, 4, 8):
                z = np.ones((9, classes), dtype=dtype)
                for row in alone:
                    z[row] = -np.inf
                    z[row, row] = 2
                bins = np.zeros((3, 15 * classes), np.int64)
                out = compiled_sweeps._parts(RowSummary.empty(9), slice(None))
                labels = np.zeros(9, np.int64)
                assert BUILT.logits(z, labels, *out, 15, *bins) == -1
                assert BUILT.check_logits(z) == -1
                z[at, classes - 1] = np.nan
                assert BUILT.logits(z, labels, *out, 15, *bins) == at
                assert BUILT.logits(z, labels, *out, *compiled_sweeps.NO_TABLES) == at
                assert BUILT.check_logits(z) == at


def _arguments(scores: object, labels: object, **changes: object) -> list[object]:
    """What ``logits`` takes for 8 rows of 40 classes, with some of it replaced."""
    names = ("odds", "confidence", "label_log_prob", "label_prob", "brier", "entropy")
    known: dict[str, object] = {"scores": scores, "labels": labels}
    known |= {"predicted": np.zeros(8, np.int64), "correct": np.empty(8, bool)}
    known |= {name: np.empty(8) for name in names}
    known |= {"bins": 2} | {name: np.zeros(80, np.int64) for name in ("count", "units", "hits")}
    return list((known | changes).values())


@needs_extension
def test_what_the_extension_refuses() -> None:
    """Every pointer is checked before it is used: an error, never a crash."""
    assert BUILT is not None
    z, labels = np.zeros((8, 40), np.float32), np.zeros(8, np.int64)
    assert BUILT.logits(*_arguments(z, labels)) == -1
    frozen = np.empty(8)
    frozen.flags.writeable = False
    for scores in (
        z[0],
        z[None],
        z.astype(np.int32),
        z.astype(np.longdouble),
        z.astype(">f4"),
        z[:, :0],
        np.zeros((8, 80), np.float32)[:, ::2],
        np.asfortranarray(z),
        z.tobytes(),
        None,
        [[1.0]],
        z.astype(object),
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            BUILT.logits(*_arguments(scores, labels))
    for changes in (
        {"labels": labels[:7]},
        {"labels": labels - 1},
        {"labels": labels + 40},
        {"labels": labels.astype(np.int32)},
        {"labels": np.zeros(16, np.int64)[::2]},
        {"labels": None},
        {"predicted": np.zeros(8, np.int32)},
        {"odds": frozen},
        {"odds": np.empty(7)},
        {"odds": np.empty(8, np.float32)},
        {"entropy": np.empty((8, 1))},
        {"correct": np.empty(8, np.int8)},
        {"bins": -1},
        {"bins": 3},
        {"bins": 1 << 62},
        {"hits": np.zeros(79, np.int64)},
    ):
        with pytest.raises((ValueError, TypeError, BufferError, OverflowError)):
            BUILT.logits(*_arguments(z, labels, **changes))
    with pytest.raises(TypeError):
        BUILT.logits(z, labels)
    with pytest.raises(ValueError, match="not available"):
        BUILT.instructions("sse9")
    table, right = np.zeros(8, np.int64), np.zeros(5, bool)
    assert BUILT.add_by_width(np.full(5, 0.5), right, 52, table, table.copy(), table.copy()) == -1
    for given in (
        (np.zeros(5), right[:4], table, table, table),
        (np.zeros(5), right, table[:7], table[:7], table[:7]),
        (np.zeros(5), right, table, table[:6], table),
        (np.zeros(5, np.float32), right, table, table, table),
        (5.0, right, table, table, table),
        (np.zeros(5), right, None, table, table),
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            BUILT.add_by_width(*given[:2], 52, *given[2:])
        with pytest.raises((ValueError, TypeError, BufferError)):
            BUILT.add_by_odds(np.ones(5), *given[:2], 512, 14, 52, *given[2:])
    with pytest.raises(ValueError, match="drop"):
        BUILT.add_by_odds(np.ones(5), np.zeros(5), right, 512, 32, 52, table, table, table)
    with pytest.raises(ValueError, match="two entries"):
        BUILT.add_by_width(np.zeros(5), right, 61, table, table, table)
    for column, sums in ((np.zeros(3), np.zeros(3, np.int64)), (np.zeros((3, 1)), table[:2])):
        with pytest.raises(ValueError, match="dense column"):
            BUILT.exact_sum(column, sums)
    one, harmonic, sums = np.ones(6), np.zeros(65), np.zeros(14)
    assert BUILT.rank_sums(2, one, one, 0.95, harmonic, sums) == -1
    for given in (
        (0, one, one, 0.95, harmonic, sums),
        (4, one, one, 0.95, harmonic, sums),
        (2, one, one[:5], 0.95, harmonic, sums),
        (2, one, one, 0.95, harmonic[:64], sums),
        (2, one, one, 0.95, harmonic, sums[:13]),
        (2, one, None, 0.95, harmonic, sums),
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            BUILT.rank_sums(*given)
    cell, upper, steps = np.zeros(6, np.int64), np.ones(18), np.arange(3.0)
    fine = [3, 4, 5, cell, upper, np.zeros(8), np.zeros(8), steps, np.zeros(60, np.float32)]
    assert BUILT.draw_labels(*fine) == -1
    for place, wrong in (
        (0, 4),
        (0, 0),
        (1, 1 << 62),
        (2, 6),
        (3, cell + 5),
        (3, cell - 1),
        (4, upper[:17]),
        (5, np.zeros(7)),
        (7, steps[:2]),
        (8, np.zeros(60)),
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            BUILT.draw_labels(*(wrong if k == place else x for k, x in enumerate(fine)))
    for good in (
        np.zeros((0, 40), np.float32),
        np.zeros((3, 1)),
        np.broadcast_to(np.float32(1), (6, 5)),
        np.zeros((6, 5), np.float32)[::-1, ::-1],
    ):
        assert BUILT.check_logits(good) == -1


@needs_extension
def test_what_fits_and_clusters_refuse() -> None:
    assert BUILT is not None
    correct = np.zeros(5, dtype=bool)
    logits, two, five = np.zeros((5, 2)), np.zeros(2), np.zeros(5)
    fine = [logits, five, two, two, five, two.copy(), two.copy()]
    assert BUILT.affine(*fine) == -1
    for place, wrong in (
        (0, logits.astype(np.float16)),
        (0, np.zeros((5, 4))[:, ::2]),
        (0, five),
        (1, two),
        (2, five),
        (3, two.astype(np.float32)),
        (4, two),
        (5, five),
        (6, None),
    ):
        with pytest.raises((ValueError, TypeError)):
            BUILT.affine(*fine[:place], wrong, *fine[place + 1 :])
    for labels, losses in ((None, five), (np.full(5, 2), five), (np.zeros(5, int), two)):
        with pytest.raises(ValueError, match="must"):
            BUILT.affine_losses(*fine[:4], labels, losses)
    rows = (np.zeros(5, int), np.zeros(5, int), correct, *np.zeros((4, 5)))
    sizes = (2, 3, 4, 0, 2, 1, 20, 9.0)
    sums = np.zeros(12, dtype=np.int64)
    assert BUILT.add_by_cluster(*rows, *sizes, sums) == -1
    assert sums[0] + sums[1] == 5
    for place, wrong in (
        (0, np.ones(5, int)),
        (1, np.full(5, 6)),
        (1, np.full(5, -1)),
        (2, rows[3]),
    ):
        with pytest.raises(ValueError, match="must"):
            BUILT.add_by_cluster(*rows[:place], wrong, *rows[place + 1 :], *sizes, sums)
    for place in (0, 1, 2, 4, 5, 6):
        with pytest.raises(ValueError, match="sizes above 0"):
            BUILT.add_by_cluster(*rows, *sizes[:place], 0, *sizes[place + 1 :], sums)
    with pytest.raises(ValueError, match="table must be"):
        BUILT.add_by_cluster(*rows, *sizes, sums[:11])


def test_choice_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernel("numpy"):
        assert calibrant.kernels() == "numpy"
        assert "(kernels: numpy)" in call("--version").stdout
    if BUILT is not None:
        with kernel("c"):
            assert calibrant.kernels() == "c"
            assert f"(kernels: c, {BUILT.instructions()})" in call("--version").stdout
    with kernel("fortran"), pytest.raises(InputError, match="must be c or numpy; got 'fortran'"):
        calibrant.kernels()

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(compiled.importlib, "import_module", missing)
    with kernel(""):
        assert calibrant.kernels() == "numpy"
    with kernel("c"), pytest.raises(InputError, match="needs the compiled extension"):
        calibrant.kernels()


def test_accumulators_say_what_made_them() -> None:
    z, labels = draw(50, 4)
    with kernel("numpy"):
        one = Accumulator(4)
        one.update(logits=z, labels=labels)
    assert one.kernels == {"numpy"}
    two = Accumulator(4)
    assert two.kernels == set()
    two.update(logits=z, labels=labels)
    assert two.kernels == {calibrant.kernels()}
    one.merge(two)
    assert one.kernels == {"numpy", calibrant.kernels()}
    assert one.num_samples == 100


@needs_extension
@pytest.mark.parametrize("name", ["c", "numpy"])
@pytest.mark.parametrize("classes", [3, 40])
def test_the_first_bad_row_is_named_whichever_thread_finds_it(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 20 * classes)
    monkeypatch.setattr(arrays, "num_threads", lambda: 3)
    rng = np.random.default_rng(0)
    z, labels = draw(3000, classes, dtype="float32")
    with kernel(name):
        for _ in range(30):
            bad = rng.choice(3000, 5, replace=False)
            broken = z.copy()
            broken[bad, rng.integers(0, classes, 5)] = np.nan
            with pytest.raises(InputError, match=f"NaN; got nan in row {bad.min()}\\."):
                Predictions(logits=broken, labels=labels)
