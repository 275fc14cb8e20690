"""The examples run and print what they promise."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
SLOW = pytest.mark.slow
SAYS = {
    "pytorch_loop.py": r"temperature \d\.\d\d[\s\S]*calibrated",
    "sklearn_pipeline.py": r"calibrated forest",
    "own_code.py": r"cross_entropy[\s\S]*mine 1",
    "deploy_onnx.py": r"ONNX and Python differ by at most \d.\de-0[6789]",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


# Programs of their own: one as users start it, and the one whose study starts workers.
@pytest.mark.parametrize("name", ["deploy_onnx.py", pytest.param("own_code.py", marks=SLOW)])
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[name], done.stdout), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytorch_loop.py", "sklearn_pipeline.py"])
def test_example_in_this_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the seconds that a new process spends on imports."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("error", UserWarning)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(SAYS[name], said), said
