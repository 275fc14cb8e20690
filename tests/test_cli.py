"""The command line as a user meets it: its output and its exit code."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from calibrant import Confidences, Predictions, load_calibrator, measure, metrics
from calibrant.cli import PARTS, _common, app, application
from calibrant.cli._calibration import calibrate_files
from tests.command import DETECTION, Done, call
from tests.conftest import CASES, draw
from tests.processes import PATIENCE, wait_for
from tests.test_files import HOSTILE

COMMANDS = ("measure", "compare", "calibrate")


def run(*arguments: object, code: int = 0) -> Done:
    done = call(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done


def run_alone(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Like ``run``, in a separate process."""
    # What old versions of Typer use of a new click is not ours to change.
    strict = ["-W", "error", "-W", "ignore:'click.:DeprecationWarning"]
    command = [sys.executable, *strict, "-m", "calibrant.cli", *map(str, arguments)]
    screen = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=screen
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.fixture
def saved(tmp_path: Path, predictions: Predictions) -> Path:
    predictions.save(tmp_path / "p.npz")
    return tmp_path / "p.npz"


LOADED = """
import sys
from calibrant.cli import main
try:
    main()
finally:
    unwanted = ("pydantic", "rich.console", "scipy", "torch", "calibrant.cli._study")
    print([name for name in unwanted if name in sys.modules], file=sys.stderr)
"""


def test_measuring_loads_what_it_needs(saved: Path) -> None:
    """Typer loads pydantic to convert values, and the modules of other commands load Rich."""
    line = [
        sys.executable,
        "-c",
        LOADED,
        "measure",
        str(saved),
        "--metrics",
        "ece",
        "--no-intervals",
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.parametrize("part", PARTS)
def test_the_module_of_a_command_is_known(part: str) -> None:
    commands = get_command(importlib.import_module(f"calibrant.cli.{part}").app)
    names = list(getattr(commands, "commands", {commands.name: commands}))
    assert tuple(names) == PARTS[part]
    assert list(get_command(application(names[0])).commands) == names


@pytest.mark.parametrize(
    "arguments", [("--bins", "ten"), ("--binning", "depth"), ("--level", "high"), ("--seed", "")]
)
def test_values_that_need_conversion_are_converted(saved: Path, arguments: tuple[str, str]) -> None:
    assert f"Invalid value for '{arguments[0]}'" in run("measure", saved, *arguments, code=2).stderr


def test_every_command_has_help_and_a_place_in_the_docs() -> None:
    text = run("--help").stdout
    docs = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert command in text
        assert len(run(command, "--help").stdout) > 300
        assert f"calibrant {command}" in docs
    assert run("--version").stdout.startswith("calibrant 0.")


def test_a_process_ends_as_the_function_does(saved: Path, tmp_path: Path) -> None:
    """Help, a table, a failed condition and bad input: the same text and the same exit code."""
    (tmp_path / "garbage.npz").write_bytes(HOSTILE["garbage.npz"][0])
    quick = ("measure", saved, "--no-intervals")
    for code, arguments in (
        (0, ("--help",)),
        (0, ("--version",)),
        (0, quick),
        (1, (*quick, "--fail-if", "ece>0")),
        (2, ("measure", tmp_path / "garbage.npz")),
        (2, ("nonsense",)),
    ):
        alone, here = run_alone(*arguments, code=code), run(*arguments, code=code)
        assert (alone.stdout, alone.stderr) == (here.stdout, here.stderr)


def test_errors_name_files_and_options(saved: Path, tmp_path: Path) -> None:
    """In the words of the command line, not of the function that it calls."""
    np.savez(tmp_path / "x.npz", scores=np.zeros((3, 2)), y=[0, 1, 0])
    for words, arguments in {
        "PATHS must be two or more files; got 1": ("compare", saved),
        "'scores', 'y'. In a table, name the columns: --label-column …": (
            "measure",
            tmp_path / "x.npz",
        ),
        ", a folder. Name a file in it.": ("measure", tmp_path),
        "calibrant: --bins must be a whole number from 1 to 1,000,000; got 0. Try --bins 15.": (
            "measure",
            saved,
            "--bins",
            0,
        ),
        "calibrant: --by must name one of the groups; got 'x'. Load a column of the file with "
        "--group-column x.": ("measure", saved, "--by", "x"),
        "calibrant: seed=0/x.npz: no such file.": ("measure", "seed=0/x.npz", "--seed", 1),
        "PATHS must be Parquet files with --stream": ("measure", saved, "--stream"),
        "--save must be a file in an existing folder": (
            "calibrate",
            "--fit",
            saved,
            "--save",
            tmp_path / "no" / "c.json",
        ),
    }.items():
        assert words in run(*arguments, code=2).stderr, words


def test_measure(saved: Path, predictions: Predictions) -> None:
    out = run("measure", saved, "--replicates", 40).stdout
    assert out == str(measure(predictions, replicates=40)) + "\n"


def test_decompose(saved: Path, predictions: Predictions, tmp_path: Path) -> None:
    ece, brier = metrics.ece_decomposition(predictions), metrics.brier_decomposition(predictions)
    found = json.loads(run("decompose", saved, "--json").stdout)
    assert found == {"ece": asdict(ece), "brier": asdict(brier)}
    text = run("decompose", saved).stdout
    for value in (ece.alpha, ece.beta, ece.gamma, ece.residual):
        assert f"{100 * value:.2f} %" in text.replace("\u2212", "-")
    few = json.loads(run("decompose", saved, "--json", "--bins", "5").stdout)["ece"]
    assert few["ece"] == metrics.ece(predictions, bins=5)
    only = tmp_path / "confidences.npz"
    Confidences(confidence=[0.9, 0.4], correct=[True, False]).save(only)
    assert set(json.loads(run("decompose", only, "--json").stdout)) == {"ece"}
    assert "Brier" not in run("decompose", only).stdout
    assert "Brier" in text


def test_measure_json_and_csv(saved: Path, predictions: Predictions) -> None:
    options = ("--no-intervals", "--bins", 10, "--norm", 2, "--binning", "mass")
    data = json.loads(run("measure", saved, "--json", *options).stdout)
    want = metrics.ece(predictions, bins=10, norm=2, binning="mass")
    assert data["metrics"]["ece"]["value"] == want
    rows = list(csv.DictReader(io.StringIO(run("measure", saved, "--csv", *options).stdout)))
    assert float(next(r for r in rows if r["metric"] == "ece")["value"]) == want
    picked = run("measure", saved, "--metrics", "skce,nll", "--replicates", 40, "--json").stdout
    assert list(json.loads(picked)["metrics"]) == ["skce", "nll"]
    run("measure", saved, "--json", "--csv", "--no-intervals", code=2)


def test_measure_confidences_and_npy_pair(tmp_path: Path) -> None:
    Confidences(confidence=[0.9, 0.4], correct=[1, 0]).save(tmp_path / "c.csv")
    assert "top label only" in run("measure", tmp_path / "c.csv", "--no-intervals").stdout
    z, labels = CASES["two classes"]
    np.save(tmp_path / "logits.npy", z)
    np.save(tmp_path / "y.npy", labels)
    out = run("measure", tmp_path / "logits.npy", "--labels", tmp_path / "y.npy", "--no-intervals")
    assert "64 samples, 2 classes" in out.stdout


def test_fail_if(saved: Path, predictions: Predictions) -> None:
    quick = ("measure", saved, "--no-intervals", "--fail-if")
    value = metrics.ece(predictions)
    run(*quick, f"ece>{value + 1e-6}")
    done = run(*quick, f"ece > {value - 1e-6}", "--fail-if", "accuracy<0.01", code=1)
    assert done.stderr.count("failed:") == 1
    assert f"ece = {value:.6g}" in done.stderr
    assert "ECE" in done.stdout  # the table is printed all the same
    for bad in ("ece", "ece=1", "ecee>1", "ece>x", "skce>0"):
        done = run(*quick, bad, code=2)
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["objects.npz", "garbage.npz", "nonsense.parquet", "near.csv"])
def test_bad_files_give_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name][0])
    done = run("measure", tmp_path / name, code=2)
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("calibrant: ")


def test_bad_arguments_give_exit_code_2(saved: Path, tmp_path: Path) -> None:
    run("measure", tmp_path / "absent.npz", code=2)
    run("measure", saved, saved, code=2)
    run("measure", saved, "--bins", 0, code=2)
    run("measure", saved, "--binning", "no", code=2)
    run("measure", saved, "--metrics", "ecee", code=2)
    run("measure", saved, "--seed", -1, code=2)
    run("compare", saved, saved.with_name("q.npz"), "--replicates", 0, code=2)
    run("measure", code=2)
    run("nonsense", code=2)


def test_json_is_valid_json(saved: Path, tmp_path: Path) -> None:
    options = ("--no-intervals", "--norm", "inf", "--json")
    text = run("measure", saved, *options).stdout

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    data = json.loads(text, parse_constant=no_constant)
    assert data["options"]["norm"] == "inf"
    Predictions(logits=[[0.0, -np.inf]], labels=[1]).save(tmp_path / "i.npz")
    data = json.loads(run("measure", tmp_path / "i.npz", *options).stdout)
    assert data["metrics"]["nll"]["value"] == "inf"


def test_terminals_without_unicode(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    assert "ECE" in run_alone("measure", saved, "--replicates", 20, "--metrics", "ece").stdout


def test_stream(tmp_path: Path) -> None:
    z, labels = draw(3000, 5)
    for k in range(3):
        columns = {f"logit_{j}": z[k::3, j] for j in range(5)}
        pq.write_table(pa.table({"label": labels[k::3], **columns}), tmp_path / f"{k}.parquet")
    want = measure(Predictions(logits=z, labels=labels), intervals=False)
    for where in (tmp_path / "*.parquet", tmp_path):
        line = ("measure", where, "--stream", "--json", "--replicates", 20)
        data = json.loads(run(*line).stdout)
        assert data["num_samples"] == 3000
        for name in ("ece", "nll", "classwise_ece"):
            got = data["metrics"][name]["value"]
            assert got == pytest.approx(want[name], rel=1e-9)
        nll = data["metrics"]["nll"]
        assert nll["low"] < nll["value"] < nll["high"]
    few = run(
        "measure", tmp_path, "--stream", "--no-intervals", "--json", "--metrics", "auroc"
    ).stdout
    assert list(json.loads(few)["metrics"]) == list(json.loads(few)["error_bounds"]) == ["auroc"]
    shown = run("measure", tmp_path, "--stream", "--no-intervals", "--metrics", "auroc,ece").stdout
    assert "exact to 0.005 %, except AUROC of correctness ±" in shown
    assert "FPR" not in shown
    run("measure", tmp_path / "none*.parquet", "--stream", code=2)
    run("measure", tmp_path, "--stream", "--no-intervals", "--metrics", "nll")
    for option in (("--labels", "y.npy"), ("--positive", "1"), ("--costs", "1,2")):
        done = run("measure", tmp_path, "--stream", *option, code=2)
        assert f"{option[0]} cannot be used with --stream" in done.stderr
    (tmp_path / "bad.parquet").write_bytes(b"PAR1nonsensePAR1")
    assert "cannot be read" in run("measure", tmp_path, "--stream", code=2).stderr


def test_compare(saved: Path, tmp_path: Path, predictions: Predictions) -> None:
    q = Predictions(logits=predictions.logits * 3, labels=predictions.labels)
    q.save(tmp_path / "q.parquet")
    out = run("compare", saved, tmp_path / "q.parquet", "--replicates", 40).stdout
    assert "p − q" in out
    assert "p is better" in out
    quick = ("--replicates", 20, "--metrics", "ece")
    data = run("compare", saved, tmp_path / "q.parquet", "--json", *quick).stdout
    assert json.loads(data)["differences"][0]["first"] == "p"
    table = run("compare", saved, tmp_path / "q.parquet", "--csv", *quick).stdout
    assert table.splitlines()[0].startswith("metric,first,second,value")
    (tmp_path / "other").mkdir()
    q.save(tmp_path / "other" / "p.npz")
    assert f"{saved} − " in run("compare", saved, tmp_path / "other" / "p.npz", *quick).stdout
    run("compare", saved, code=2)
    run("compare", saved, saved, code=2)


def halves(folder: Path, predictions: Predictions) -> tuple[Path, Path]:
    for part, name in zip(predictions.split(0.5, seed=0), ("val", "test"), strict=True):
        part.save(folder / f"{name}.npz")
    return folder / "val.npz", folder / "test.npz"


def test_calibrate(tmp_path: Path, predictions: Predictions) -> None:
    pytest.importorskip("onnx")
    val, test = halves(tmp_path, predictions)
    names = {name: tmp_path / name for name in ("out.npz", "c.json", "c.onnx", "again.npz")}
    done = run(
        "calibrate",
        "--fit",
        val,
        "--apply",
        test,
        "--method",
        "temperature",
        "--out",
        names["out.npz"],
        "--save",
        names["c.json"],
        "--onnx",
        names["c.onnx"],
        "--replicates",
        40,
        "--seed",
        2,
    )
    want = calibrate_files(
        fit=val, method="temperature", apply=[test], out=names["again.npz"], replicates=40, seed=2
    )
    assert done.stdout.split("Written")[0] == str(want).split("Written")[0]
    assert done.stderr == ""
    got, again = (Predictions.load(names[name]) for name in ("out.npz", "again.npz"))
    assert (got.logits == again.logits).all()
    assert (load_calibrator(names["c.json"]).transform(got).num_samples) == len(got)
    assert names["c.onnx"].stat().st_size > 100
    text = run(
        "calibrate",
        "--load",
        names["c.json"],
        "--apply",
        test,
        "--out",
        names["again.npz"],
        "--replicates",
        20,
        "--json",
    ).stdout
    data = json.loads(text)
    assert data["learned"]["temperature"] == want.to_dict()["learned"]["temperature"]
    assert (
        data["before"]["metrics"]["ece"]["value"]
        == measure(Predictions.load(test), intervals=False)["ece"]
    )


def test_calibrate_auto_on_shards(tmp_path: Path, predictions: Predictions) -> None:
    val, test = halves(tmp_path, predictions.take(np.arange(300)))
    p = Predictions.load(test)
    (tmp_path / "shards").mkdir()
    for k in range(2):
        p.take(np.arange(k, len(p), 2)).save(tmp_path / "shards" / f"{k}.parquet")
    done = run(
        "calibrate",
        "--fit",
        val,
        "--apply",
        tmp_path / "shards" / "*.parquet",
        "--out",
        tmp_path / "out.parquet",
    )
    assert "chosen: " in done.stdout
    assert "rejected: " in done.stdout
    assert "No intervals" in done.stdout
    assert len(Predictions.load(tmp_path / "out.parquet")) == len(p)


def test_calibrate_options_and_warnings(tmp_path: Path, predictions: Predictions) -> None:
    right = Predictions(logits=predictions.logits, labels=predictions.predicted)
    right.save(tmp_path / "right.npz")
    fit = ("calibrate", "--fit", tmp_path / "right.npz", "--replicates", 20)
    done = run(*fit, "--method", "temperature", "--option", "bounds=[0.5, 3]")
    assert "temperature = 0.5" in done.stdout
    assert done.stderr.startswith("calibrant: warning: The temperature that minimises NLL")
    assert len(done.stderr.strip().splitlines()) == 1


def test_calibrate_bad_input_gives_one_line(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "garbage.npz").write_bytes(HOSTILE["garbage.npz"][0])
    fit = ("--fit", saved, "--method", "temperature")
    for arguments in (
        (),
        (*fit, "--apply", saved, "--out", saved),
        (*fit, "--apply", tmp_path / "garbage.npz", "--out", tmp_path / "o.npz"),
    ):
        done = run("calibrate", *arguments, code=2)
        assert done.stdout == ""
        assert done.stderr.startswith("calibrant: ")
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o.npz").exists()


PATCHED = """
import sys, time
from calibrant import cli
from calibrant._core.checks import ConvergenceError
from calibrant.calibrators import TemperatureScaling

def learn(*_):
    raise ConvergenceError("The fit stopped.")

def transform(*_, **__):
    time.sleep(600)

changes = {"learn": ("_learn", learn), "wait": ("transform", transform)}
setattr(TemperatureScaling, *changes[sys.argv.pop(1)])
cli.main()
"""


def patched(how: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PATCHED, how, "calibrate", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_calibrate_without_convergence(tmp_path: Path, saved: Path) -> None:
    fit = ("--fit", saved, "--method", "temperature", "--save", tmp_path / "c.json")
    with patched("learn", *fit) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (2, "", "calibrant: The fit stopped.\n")
    assert not (tmp_path / "c.json").exists()


def test_calibrate_ended_by_a_scheduler_leaves_nothing(
    tmp_path: Path, predictions: Predictions
) -> None:
    pytest.importorskip("onnx")
    predictions.save(tmp_path / "p.parquet")
    before = set(tmp_path.iterdir())
    fit = ("--fit", tmp_path / "p.parquet", "--method", "temperature")
    arguments = (
        *fit,
        "--onnx",
        tmp_path / "c.onnx",
        "--apply",
        tmp_path,
        "--out",
        tmp_path / "o.parquet",
    )
    with patched("wait", *arguments) as process:
        wait_for(lambda: set(tmp_path.iterdir()) != before or process.poll() is not None)
        assert set(tmp_path.iterdir()) != before  # under way
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert set(tmp_path.iterdir()) == before


def completions(*words: str) -> list[str]:
    """What bash is told after these words, the last one unfinished."""
    asked = {"COMP_WORDS": " ".join(("calibrant", *words)), "COMP_CWORD": str(len(words))}
    out = io.StringIO()
    with (
        patch.dict(os.environ, {**asked, "_CALIBRANT_COMPLETE": "complete_bash"}),
        redirect_stdout(out),
        pytest.raises(SystemExit, match="0"),
    ):
        get_command(app)([], prog_name="calibrant")
    return out.getvalue().split()


def test_the_shell_completes_commands_options_and_names() -> None:
    assert completions("meas") == ["measure"]
    assert completions("measure", "--prob") == ["--prob-columns"]
    assert completions("measure", "--binning", "") == ["width", "mass"]
    assert completions("measure", "--metrics", "nll,ada") == ["nll,adaptive_ece"]
    assert completions("calibrate", "--method", "str") == [
        "structured_vector",
        "structured_matrix",
    ]


def test_the_completion_script_is_shown_and_installed(tmp_path: Path) -> None:
    shell = {DETECTION: "1", "HOME": str(tmp_path)}
    with patch.dict(os.environ, shell):
        assert "complete -o default -F" in run("--show-completion", "bash").stdout
        assert "bash completion installed" in run("--install-completion", "bash").stdout
    assert ".bash_completions" in (tmp_path / ".bashrc").read_text()


def test_progress_off_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while one step takes long, and no longer than the work does."""
    assert _common.Heartbeat.EVERY == 10
    monkeypatch.setattr(_common.Heartbeat, "EVERY", 0.01)
    said = ""
    with _common.progress("fitting", unit="") as advance:
        while "calibrant: fitting …\n" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
        advance("trying methods", 2, 7)
        while "calibrant: trying methods: 2 of 7\n" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""
