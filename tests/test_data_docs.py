"""The guide to data names every data set."""

from __future__ import annotations

from pathlib import Path

from calibrant import data

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_set_and_shift_is_in_the_guide() -> None:
    for name in (*data.DATASETS, *data.SHIFTS):
        assert name in GUIDE or name.replace(name.removesuffix("-generated"), "DATASET") in GUIDE
    reference = (ROOT / "docs" / "api" / "data.md").read_text(encoding="utf-8")
    for name in data.__all__:
        assert name in reference
