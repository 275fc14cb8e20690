"""The calls of `fuzz.py`: the arguments of a command, and files with something wrong."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

import numpy as np
import torch

from fuzz_damage import (
    STUDY,
    damage,
    damage_json,
    damage_zip,
    damaged_toml,
    json_text,
    random_array,
    special,
)
from fuzz_files import Base, hostile_predictions, hostile_result, hostile_results, hostile_tensors
from fuzz_texts import options

METHODS = ("temperature", "isotonic", "vector", "histogram")
API = "python:"  # calls of functions that no command has


class Tiny(torch.nn.Module):
    """A network for `data features`."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, ::4, ::4].flatten(1)


def run_call(arguments: list[str]) -> int:
    """Call a function as a careful user does: exit code 2 for errors that are meant for him."""
    from calibrant import InputError, MultiLabel, load_calibrator, measure

    kind, path, *more = arguments
    try:
        if kind == f"{API}MultiLabel":
            measure(MultiLabel.load(path), replicates=20)
        else:
            load_calibrator(path).transform(MultiLabel.load(more[0]))
    except (InputError, OSError, MemoryError) as error:
        print(error)
        return 2
    return 0


def case(number: int, seed: int, base: Base, folder: Path) -> list[str]:
    """The arguments of one call; its files are in ``folder``."""
    rng = random.Random(f"{seed}-{number}")
    kinds = [
        measure_case,
        measure_case,
        compare_case,
        calibrate_case,
        calibrate_case,
        json_case,
        json_case,
        shift_case,
        monitor_case,
        report_case,
        predict_case,
        train_case,
        data_case,
        study_case,
        study_case,
        results_case,
        results_case,
        papers_case,
        decompose_case,
        features_case,
        several_case,
    ]
    return kinds[number % len(kinds)](base, folder, rng)


def measure_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = hostile_predictions(base, folder, rng)
    stream = ["--stream"] if path.suffix == ".parquet" and rng.random() < 0.5 else []
    few = [] if stream else ["--replicates", "20", *options(rng)]
    return ["measure", str(path), *stream, *few, *rng.choice([[], [], ["--json"], ["--csv"]])]


def compare_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = hostile_predictions(base, folder, rng)
    paths = [str(base.folder / "p.npz"), str(path)]
    if rng.random() < 0.3:  # the same file twice, so that the models fit together
        paths[0] = shutil.copy(path, folder / f"other{path.suffix}") if path.is_file() else paths[1]
    return ["compare", *map(str, paths), "--replicates", "20"]


def decompose_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = hostile_predictions(base, folder, rng)
    return ["decompose", str(path), *rng.choice([[], [], ["--json"], ["--binning", "mass"]])]


def several_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """Several labels per sample."""
    path, sound = folder / "several.npz", (base.folder / "several.npz").read_bytes()
    kind = rng.random()
    if kind < 0.1:
        path = special(folder, "several.npz", rng)
    elif kind < 0.15:
        path = base.bombs["npz"]
    elif kind < 0.55:
        path.write_bytes(damage_zip(sound, rng) if rng.random() < 0.7 else damage(sound, rng))
    else:
        with np.load(base.folder / "several.npz") as file:
            arrays = dict(file)
        arrays[rng.choice([*arrays, "calibrant"])] = random_array(rng)
        np.savez(path, **arrays, allow_pickle=False)
    return [f"{API}MultiLabel", str(path)]


def features_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """Images, or what an earlier call left, with something wrong."""
    data, out, kind = folder / "images.npz", folder / "features", rng.random()
    shutil.copy(base.folder / "images.npz", data)
    if kind < 0.1:
        data.unlink()
        data = special(folder, "images.npz", rng)
    elif kind < 0.3:
        sound = data.read_bytes()
        data.write_bytes(damage_zip(sound, rng) if rng.random() < 0.7 else damage(sound, rng))
    elif kind < 0.5:
        with np.load(base.folder / "images.npz") as file:
            arrays = dict(file)
        arrays[rng.choice([*arrays, "classes"])] = random_array(rng)
        np.savez(data, **arrays, allow_pickle=False)
    else:
        shutil.copytree(base.folder / "features", out)
        _spoil_features(out, rng)
    line = ["data", "features", "--data", str(data), "--out", str(out), "--precision", "fp32"]
    shift = [] if rng.random() < 0.7 else ["--shift", rng.choice(SHIFTS)]
    return [*line, "--backbone", "fuzz_cases:Tiny", "--size", "16", *shift]


SHIFTS = ["generated/fog/3", "generated/contrast/9", "x", "/dev/zero", "nowhere.npz", "a/b/c"]


def _spoil_features(out: Path, rng: random.Random) -> None:
    path = rng.choice([out / "features.json", out / "images.npz", *(out / "parts").iterdir()])
    sound = path.read_bytes()
    path.unlink()
    if rng.random() < 0.2:
        special(path.parent, path.name, rng)
    elif path.suffix == ".json":
        value = json.loads(sound)
        path.write_bytes(json_text(damage_json(value, rng), rng))
    else:
        path.write_bytes(damage(sound, rng))
        (out / "features.json").unlink()  # so that it is not known to be finished


def calibrate_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    bad, good = hostile_predictions(base, folder, rng), base.folder / "p.npz"
    fit, apply = (bad, good) if rng.random() < 0.5 else (good, bad)
    out = folder / rng.choice(["o.npz", "o.parquet", "o.csv"])
    if rng.random() < 0.1:
        out = special(folder, "o.npz", rng)
    method = rng.choice(METHODS)
    return [
        "calibrate",
        "--fit",
        str(fit),
        "--method",
        method,
        "--apply",
        str(apply),
        "--out",
        str(out),
        "--replicates",
        "20",
        *options(rng),
    ]


def json_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    chosen = rng.choice(sorted((base.folder / "calibrators").iterdir()))
    path, sound = folder / "c.json", chosen.read_bytes()
    if rng.random() < 0.05:
        path = special(folder, "c.json", rng)
    elif rng.random() < 0.3:
        path.write_bytes(damage(sound, rng))
    else:
        value = json.loads(sound)
        for _ in range(rng.choice([1, 1, 3])):
            value = damage_json(value, rng)
        path.write_bytes(json_text(value, rng))
    if chosen.stem == "several" and rng.random() < 0.8:
        return [f"{API}calibrator", str(path), str(base.folder / "several.npz")]
    return [
        "calibrate",
        "--load",
        str(path),
        "--apply",
        str(base.folder / "p.npz"),
        "--out",
        str(folder / "o.npz"),
        "--replicates",
        "20",
    ]


def shift_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    files = [base.folder / "p.npz", hostile_predictions(base, folder, rng)]
    rng.shuffle(files)
    outputs = ["--out", str(folder / "o.npz"), "--save", str(folder / "c.json")]
    return ["shift", *map(str, files), "--replicates", "20", *outputs, *options(rng)]


def monitor_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    sound, state = base.folder / "p.npz", folder / "m.json"
    if rng.random() < 0.3:
        bad = hostile_predictions(base, folder, rng)
        return ["monitor", str(bad), "--reference", str(sound), "--state", str(state)]
    if rng.random() < 0.1:
        state = special(folder, "m.json", rng)
    else:
        value = json.loads((base.folder / "monitor.json").read_bytes())
        for _ in range(rng.choice([1, 1, 3])):
            value = damage_json(value, rng)
        state.write_bytes(json_text(value, rng))
    return ["monitor", str(sound), "--state", str(state)]


def report_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = folder / "r.html"
    if rng.random() < 0.2:
        out = special(folder, "r.html", rng)
    path = hostile_predictions(base, folder, rng)
    if rng.random() < 0.5:
        path = hostile_results(base, folder, rng)
    return ["report", str(path), "-o", str(out)]


def predict_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    run = folder / "run"
    shutil.copytree(base.folder / "run", run)
    name = rng.choice(["run.json", "run.json", "weights.pt"])
    sound = (run / name).read_bytes()
    (run / name).unlink()
    if rng.random() < 0.08:
        special(run, name, rng)
    elif name == "run.json":
        value = damage_json(json.loads(sound), rng)
        (run / name).write_bytes(json_text(value, rng))
    else:
        (run / name).write_bytes(hostile_tensors(sound, rng))
    return [
        "predict",
        str(run),
        "--data",
        str(base.folder / "d.npz"),
        "--out",
        str(folder / "o.npz"),
    ]


def train_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """A data file, or a checkpoint to go on from, with something wrong."""
    data, out = folder / "d.npz", folder / "run"
    shutil.copy(base.folder / "d.npz", data)
    kind = rng.random()
    if kind < 0.35:
        out.mkdir()
        sound = (base.folder / "run" / "checkpoint.pt").read_bytes()
        (out / "checkpoint.pt").write_bytes(hostile_tensors(sound, rng))
    elif kind < 0.4:
        data.unlink()
        data = special(folder, "d.npz", rng)
    elif kind < 0.7:
        sound = data.read_bytes()
        data.write_bytes(damage_zip(sound, rng) if rng.random() < 0.7 else damage(sound, rng))
    else:
        with np.load(base.folder / "d.npz") as file:
            arrays = dict(file)
        arrays[rng.choice([*arrays, "classes"])] = random_array(rng)
        np.savez(data, **arrays, allow_pickle=False)
    return [
        "train",
        "--data",
        str(data),
        "--out",
        str(out),
        "--model",
        "mlp",
        "--recipe",
        "quick",
        "--epochs",
        "1",
        "--option",
        "batch_size=32",
    ]


def data_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """MNIST's files with something wrong."""
    inside = folder / "mnist"
    inside.mkdir()
    images = b"\0\0\x08\x03" + np.array([30, 28, 28], ">u4").tobytes() + bytes(30 * 784)
    labels = b"\0\0\x08\x01" + np.array([30], ">u4").tobytes() + bytes(range(10)) * 3
    files = {
        "train-images-idx3-ubyte": images,
        "train-labels-idx1-ubyte": labels,
        "t10k-images-idx3-ubyte": images,
        "t10k-labels-idx1-ubyte": labels,
    }
    chosen = rng.choice(list(files))
    for name, content in files.items():
        packed = gzip.compress(damage(content, rng) if name == chosen else content)
        (inside / f"{name}.gz").write_bytes(damage(packed, rng) if rng.random() < 0.1 else packed)
    if rng.random() < 0.1:
        (inside / "train-images-idx3-ubyte.gz").unlink()
        shutil.copy(base.bombs["gz"], inside / "train-images-idx3-ubyte.gz")
    return [
        "train",
        "--data",
        "mnist",
        "--data-dir",
        str(folder),
        "--out",
        str(folder / "run"),
        "--model",
        "mlp",
        "--recipe",
        "quick",
        "--epochs",
        "1",
    ]


def study_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = folder / "s.toml"
    if rng.random() < 0.06:
        path = special(folder, "s.toml", rng)
    elif rng.random() < 0.2:
        path.write_bytes(damage(STUDY.encode(), rng))
    else:
        path.write_text(damaged_toml(rng), encoding="utf-8")
    command = rng.choice([["study", "run"], ["study", "status"], ["select"], ["study", "tune"]])
    out = folder / "out"
    shutil.copytree(base.folder / "out", out)
    return [*command, str(path), "--out", str(out)]


def results_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = str(hostile_results(base, folder, rng))
    file = str(base.folder / "s.toml")
    commands = [
        ["study", "table", out],
        ["study", "status", file, "--out", out],
        ["study", "run", file, "--out", out],
        ["select", file, "--out", out],
        ["report", out, "-o", str(folder / "r.html")],
        ["report", out, "--study", file, "-o", str(folder / "r.html")],
    ]
    return rng.choice(commands)


def papers_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = hostile_results(base, folder, rng)
    inside = out / "results"
    if inside.is_dir():
        sound = next(iter((base.folder / "out" / "results").iterdir())).read_bytes()
        hostile_result(base, inside / f"{base.paper_key}.parquet", sound, rng)
    scale = [] if rng.random() < 0.5 else ["--scale", "smoke"]
    if rng.random() < 0.7:  # the claims take seconds of arithmetic, whatever the files hold
        return ["study", "table", str(out), "--metric", rng.choice(["ece", "nll", "x"])]
    return ["papers", "claims", "--results", str(out), *scale]
