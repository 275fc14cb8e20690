"""The examples run and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "pytorch_loop.py": r"temperature \d\.\d\d[\s\S]*calibrated",
    "sklearn_pipeline.py": r"calibrated forest",
    "own_code.py": r"cross_entropy[\s\S]*mine 1",
    "deploy_onnx.py": r"ONNX and Python differ by at most \d.\de-0[6789]",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pytorch_loop.py", marks=pytest.mark.slow),
        pytest.param("sklearn_pipeline.py", marks=pytest.mark.slow),
        "deploy_onnx.py",
        pytest.param("own_code.py", marks=pytest.mark.slow),
    ],
)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[name], done.stdout), done.stdout
