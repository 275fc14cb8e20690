"""Scores in bfloat16: the numbers of float32, without a copy in float32."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from calibrant import InputError, MultiLabel, Predictions, Scores, metrics
from calibrant.calibrators import TemperatureScaling
from calibrant.streaming import Accumulator
from tests.conftest import draw
from tests.test_kernels import columns, kernel, needs_extension

SHAPES = [(300, 2), (301, 7), (67, 19), (40, 32), (33, 33), (50, 1000)]


def bits_of(z: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(z).bfloat16()


@needs_extension
@pytest.mark.parametrize("name", ["c", "numpy"])
@pytest.mark.parametrize(("rows", "classes"), SHAPES)
def test_same_bits_as_float32(name: str, rows: int, classes: int) -> None:
    z, labels = draw(rows, classes, spread=4, dtype="float32")
    z[0], z[1, 1:], z[2] = z[0] + 90, -np.inf, z[2, 0]
    labels[1] = 0
    t = bits_of(z)
    with kernel(name):
        wanted = Predictions(logits=t.float(), labels=labels)
        given = {
            "tensor": t,
            "array": t.float().numpy().astype(ml_dtypes.bfloat16),
            "strided": torch.stack([t, t], 1)[:, 1],
            "turned": t.T.contiguous().T,
        }
        for what, scores in given.items():
            p = Predictions(logits=scores, labels=labels)
            assert p.logits.dtype == np.float32
            assert (p.logits == wanted.logits).all(), what
            again = Predictions(logits=scores, labels=labels)
            for column, values in columns(wanted).items():
                assert (columns(again)[column] == values).all(), (what, column)
            assert metrics.classwise_ece(again) == metrics.classwise_ece(wanted), what


@needs_extension
def test_measuring_makes_no_copy() -> None:
    z, labels = draw(4000, 1000, spread=3, dtype="float32")
    t = bits_of(z)
    with kernel("c"):
        tracemalloc.start()
        p = Predictions(logits=t, labels=labels)
        found = metrics.ece(p), metrics.classwise_ece(p)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        wanted = Predictions(logits=t.float(), labels=labels)
        assert found == (metrics.ece(wanted), metrics.classwise_ece(wanted))
    assert peak < 0.3 * t.numel() * t.element_size()


@pytest.mark.parametrize("name", ["c", "numpy"])
@pytest.mark.parametrize("classes", [3, 40])
def test_bad_logits_are_refused(name: str, classes: int) -> None:
    if name == "c":
        pytest.importorskip("calibrant._core._rows")
    z = torch.zeros(5, classes).bfloat16()
    faults = {"NaN": torch.nan, "inf": torch.inf, "finite entry": -torch.inf}
    with kernel(name):
        for fault, value in faults.items():
            bad = z.clone()
            bad[3, slice(None) if fault == "finite entry" else 1] = value
            with pytest.raises(InputError, match=rf"{fault}.*row 3"):
                Predictions(logits=bad, labels=[0] * 5)


def test_a_record_like_any_other() -> None:
    z, labels = draw(60, 5, dtype="float32")
    t, expected = bits_of(z), Predictions(logits=bits_of(z).float(), labels=labels)
    p: Any = Predictions(logits=t.requires_grad_(), labels=labels)
    for other in (p, pickle.loads(pickle.dumps(p)), p.take(range(60)), p.slab(slice(0, 60))):
        assert (other.confidence == expected.confidence).all()
    assert (p.take([3, 4]).logits == expected.logits[3:5]).all()
    assert (Scores(logits=t).confidence == expected.confidence).all()
    kept = Predictions(logits=t, labels=np.where(labels == 1, -1, labels), ignore_index=-1)
    assert (kept.confidence == expected.confidence[labels != 1]).all()
    assert (
        TemperatureScaling().fit(p).temperature_ == TemperatureScaling().fit(expected).temperature_
    )
    several = (labels[:, None] == np.arange(5)).astype(int)
    for given in (t, t.float()):
        assert (MultiLabel(logits=given, labels=several).scores == expected.logits).all()
    total = Accumulator(5)
    total.update(logits=t, labels=labels)
    assert total.num_samples == 60
    with pytest.raises(InputError, match="shape"):
        Predictions.from_binary(logits=t, labels=labels)
    with pytest.raises(InputError, match="shape"):
        Predictions(logits=t[0], labels=labels[:1])
