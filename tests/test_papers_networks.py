"""Claims on the predictions of public networks: intervals are over networks."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from calibrant import InputError
from calibrant.cli import app
from calibrant.papers import NETWORKS, Place, evidence_at, judge, network_evidence, scale_note
from calibrant.papers._evidence import Label
from calibrant.papers._networks import FILE, NETWORK_COLUMNS

EVIDENCE = Path(__file__).parents[1] / "evidence"
AREAS = {"a": (0.90, 0.897), "b": (0.92, 0.915), "c": (0.94, 0.939)}  # before and after


def write(
    folder: Path, rows: list[tuple[object, ...]], head: tuple[str, ...] = NETWORK_COLUMNS
) -> Path:
    with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return folder


def areas() -> list[tuple[object, ...]]:
    calibrators = ("none", "temperature_fixed")
    return [
        ("cifar10", network, "test", calibrator, "auroc", value)
        for network, values in AREAS.items()
        for calibrator, value in zip(calibrators, values, strict=True)
    ]


def test_the_interval_is_a_t_interval_over_networks(tmp_path: Path) -> None:
    [(_, verdict)] = judge(network_evidence(write(tmp_path, areas())), ["S2"])
    gaps = [100 * (after - before) for before, after in AREAS.values()]
    reach = stats.t.ppf(0.975, 2) * np.std(gaps, ddof=1) / np.sqrt(3)
    assert verdict.effect == pytest.approx(np.mean(gaps))
    assert (verdict.low, verdict.high) == pytest.approx(
        (np.mean(gaps) - reach, np.mean(gaps) + reach)
    )
    assert verdict.tested == ("cifar10, a", "cifar10, b", "cifar10, c")
    assert verdict.cases == (3, 3)


def test_shifted_predictions_are_shift_and_other_measures_no_evidence(tmp_path: Path) -> None:
    rows = [
        ("cifar10", "a", "shift", "temperature", "ece_l2_mass", 0.2),
        ("cifar10", "a", "test", "none", "ece, 15 bins", 0.1),
    ]
    found = network_evidence(write(tmp_path, rows))
    assert len(found.cells) == 1
    place = Place("cifar10", "a", "shift")
    cell = found.at("karandikar2021", "shift", "ece")[place][Label("cross_entropy", "temperature")]
    assert cell.mean == 0.2
    assert cell.seeds is None


@pytest.mark.parametrize("damage", ["column", "number", "nan", "file"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    rows = areas()
    if damage in ("number", "nan"):
        rows[1] = (*rows[1][:-1], "much" if damage == "number" else "nan")
    if damage != "file":
        head = NETWORK_COLUMNS if damage != "column" else (*NETWORK_COLUMNS[:-1], "worth")
        write(tmp_path, rows, head)
    with pytest.raises(InputError, match="must"):
        network_evidence(tmp_path)


def test_what_the_repository_has_decides_these_claims() -> None:
    done = CliRunner().invoke(
        app, ["papers", "claims", "--results", str(EVIDENCE), "--scale", NETWORKS, "--json"]
    )
    assert done.exit_code == 0, done.output
    found = {row["claim"]: row for row in json.loads(done.stdout)}
    tested = {
        name
        for name, row in found.items()
        if row["effect"] is not None and row["rests_on"] != "mathematics"
    }
    assert tested == {"W5", "S2", "S10", "K2", "K5"}
    assert len(found["S2"]["tested"]) >= 15
    assert scale_note(NETWORKS) in done.stderr
    assert evidence_at(EVIDENCE, NETWORKS).source == "the predictions of public networks"
