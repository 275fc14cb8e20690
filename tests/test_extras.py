"""Without an optional package, one sentence says how to install it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from calibrant import InputError
from calibrant._core.extras import EXTRAS, MissingPackageError, import_extra

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_is_named_with_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, install = EXTRAS[package]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as caught:
        import_extra(package, "Drawing")
    assert str(caught.value) == f"Drawing needs {name}. Install it with: pip install '{install}'"
    assert isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name == package


def test_every_extra_named_is_one_of_the_project() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for _, install in EXTRAS.values():
        if install.startswith("calibrant["):
            assert install.removeprefix("calibrant[").removesuffix("]") in known


def test_what_an_installed_package_lacks_is_not_blamed_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plotly_stand_in.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXTRAS, "plotly_stand_in", ("Plotly", "calibrant[report]"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as caught:
        import_extra("plotly_stand_in", "A report")
    assert not isinstance(caught.value, MissingPackageError)


def test_the_error_comes_back_from_a_worker_as_it_was() -> None:
    error = MissingPackageError("calibrant.train needs PyTorch.", name="torch")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--data", "signals", "--model", "cnn1d", "--recipe", "quick", "--out", "run"],
        ["study", "run", "quick", "--out", "results", "--workers", "1", "--threads", "1"],
    ],
)
def test_without_pytorch_training_ends_with_one_line(command: list[str], tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from calibrant.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "pip install 'calibrant[train]'" in done.stderr
