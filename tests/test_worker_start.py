"""What a worker of a study does not wait for: garbage collections during imports, and pandas."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from calibrant._core.processes import DRIVER
from calibrant.io._plain_arrays import plain_array
from calibrant.results._files import COLUMNS, SCHEMA, table_of

ROW: dict[str, Any] = dict.fromkeys(COLUMNS, "x") | {"seed": 3, "value": 0.5}

LOADED = """
import gc
from calibrant._core.preloading import load
load("json.tool")
assert gc.isenabled()
print(gc.get_freeze_count() > 0)
"""

ONE_RUN = """
import sys
from calibrant.results import Store
from calibrant.study import Study
from calibrant.study._execute import execute
study = Study.parse({
    "data": {"name": "signals", "train_size": 60, "test_size": 30},
    "models": {"name": "cnn1d", "width": 4}, "recipe": {"name": "quick", "epochs": 1},
    "calibration": 0.5, "seeds": 1, "shifts": ["signals/3"], "objectives": ["cross_entropy"],
})
store = Store(sys.argv[1])
run, = study.runs
store.prepare([run.key])
execute(run, study.evaluation, store)
assert store.failure(run.key) is None, store.failure(run.key)
assert store.facts(run.key)["label"] == "cross_entropy"
print("pandas" in sys.modules)
"""


def said(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_what_a_fork_server_loads_is_left_aside() -> None:
    """Workers need not look through it; a process that is its own driver stays as it is."""
    assert said(LOADED, **{DRIVER: str(os.getpid())}) == "True"
    alone = f"import os; os.environ['{DRIVER}'] = str(os.getpid())\n{LOADED}"
    assert said(alone) == "False"


def test_a_run_does_not_load_pandas(tmp_path: Path) -> None:
    assert said(ONE_RUN, str(tmp_path / "out")) == "False"


def test_tables_from_buffers() -> None:
    """The same as Arrow makes of the rows."""
    other = {**ROW, "objective": "Größe ✓ + 0.5*mmce", "part": "", "seed": -(2**62), "value": 2}
    gaps = {**ROW, "part": None, "value": None}
    for rows in ([], [ROW], [ROW, other, {**ROW, "value": math.inf}], 5 * [ROW, gaps, other]):
        found = table_of(rows)
        found.validate(full=True)
        assert found.equals(pa.Table.from_pylist(rows, SCHEMA))
    (nan,) = table_of([{**ROW, "value": math.nan}])["value"].to_pylist()
    assert math.isnan(nan)


def test_columns_of_any_values() -> None:
    for values in (
        [1, None, 3],
        [0.5, 2, None],
        [None, "a", "", "ß"],
        list(range(20)),
        [],
        [None, None],
        [True, False, None],
        [[1.0], [2.0, 3.0]],
    ):
        found = plain_array(values)
        found.validate(full=True)
        assert found.equals(pa.array(values))
        assert found.type == pa.array(values).type
