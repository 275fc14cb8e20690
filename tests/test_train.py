"""Training: determinism, resuming, records, stopping, faults, several processes, predictions."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from calibrant import InputError, Predictions, metrics
from calibrant._core.checks import CalibrationWarning
from calibrant.cli import app
from calibrant.data import Dataset, load
from calibrant.data.augment import random_resized_crop
from calibrant.models import build
from calibrant.train import (
    RECIPES,
    EarlyStopping,
    Recipe,
    TrainingError,
    _checkpoint,
    _inputs,
    _loop,
    choose_precision,
    get_recipe,
    predict,
    read_run,
    train,
)
from calibrant.train._inputs import Inputs
from calibrant.train._telemetry import TrainingRecord, record_on_test
from tests.close import assert_close
from tests.command import call
from tests.processes import PATIENCE

SMALL = Recipe(epochs=3, batch_size=64, optimizer="adamw", learning_rate=0.003, weight_decay=0.0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def signals() -> Dataset:
    return load("signals")


@pytest.fixture(scope="module")
def pictures() -> Dataset:
    """A few colour images, so that crops, flips and mixes have something to do."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 96)
    x = rng.integers(0, 120, (96, 3, 12, 12)) + 45 * y[:, None, None, None]
    x = x.astype(np.uint8)
    return Dataset("pictures", "image", x[:64], y[:64], x[64:], y[64:], ("a", "b", "c"), {})


def run(dataset: Dataset, **options: Any):
    return train(dataset, **{"model": "cnn1d", "recipe": SMALL, **options})


@pytest.fixture(scope="module")
def whole(signals: Dataset):
    """A run without interruption, for several tests to look at."""
    return run(signals)


@pytest.fixture(scope="module")
def finished(signals: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that run, to be copied."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(signals, out=folder)
    return folder


def weights(trained) -> list[torch.Tensor]:
    return list(trained.model.state_dict().values())


def same(one, two) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(two), strict=True))


# --- recipes ----------------------------------------------------------------------------------

# Studies keep their results by the name of a recipe: what a name means must not change.
FROZEN = {
    "quick": "4f3be2e2b9f6",
    "cifar": "7553fae6a62e",
    "cifar-fast": "a31e90848659",
    "mukhoti2020": "f339b89c0cae",
    "mukhoti2020-tiny-imagenet": "cb7ca854e7c4",
    "mukhoti2020-sst": "d17db8fac448",
    "wang2021": "72e4b00f5b30",
    "wang2021-news20": "8238a78f435b",
    "wang2021-newsgroups": "bdeb5703e5d6",
    "singh2021": "cdff67ed5415",
    "singh2021-ls-fl": "ac048eb1e6d8",
    "singh2021-imagenet": "318971e16077",
    "karandikar2021": "807d8fa52124",
    "karandikar2021-imagenet": "b0773ea0461e",
}


def test_a_later_setting_changes_a_recipe_only_where_it_is_set() -> None:
    assert "resized_crop" not in Recipe().facts()
    assert Recipe(resized_crop=0.08).facts() == {**Recipe().facts(), "resized_crop": 0.08}
    assert "plain_epochs" not in Recipe().facts()
    assert Recipe(plain_epochs=2).facts() == {**Recipe().facts(), "plain_epochs": 2}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_never_changes_under_its_name(name: str) -> None:
    text = json.dumps(RECIPES[name].facts(), sort_keys=True)
    found = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert FROZEN.get(name) == found, "give the changed recipe a new name, and list it here"


def test_schedules() -> None:
    step = Recipe(epochs=350, schedule="step", milestones=(150, 250))
    rates = [step.rate(epoch / 350) for epoch in (0, 149, 150, 249, 250, 349)]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    cosine = Recipe(schedule="cosine", learning_rate=1.0)
    np.testing.assert_allclose([cosine.rate(p) for p in (0, 0.5, 1)], [1, 0.5, 0], atol=1e-12)
    cycle = Recipe(schedule="one_cycle", learning_rate=1.0)
    np.testing.assert_allclose(
        [cycle.rate(p) for p in (0, 0.15, 0.3, 0.65, 1)], [0, 0.5, 1, 0.5, 0]
    )
    warm = Recipe(epochs=10, schedule="constant", warmup=2.0, learning_rate=1.0)
    np.testing.assert_allclose([warm.rate(p) for p in (0, 0.1, 0.2, 0.9)], [0, 0.5, 1, 1])


OPTIMISERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.slow  # PyTorch's own optimisers load its compiler
def test_optimisers_are_those_of_pytorch(name: str) -> None:
    """Bit for bit, their state included; saved and loaded after two steps."""

    def steps(optimiser: Any, weight: torch.nn.Parameter, first: int, last: int) -> None:
        for step in range(first, last):
            optimiser.zero_grad()
            (weight**2).sum().mul(step + 1).backward()
            optimiser.step()

    recipe = Recipe(optimizer=name, momentum=0.9, nesterov=True, weight_decay=0.01)
    weight, again, twin = (torch.nn.Parameter(torch.linspace(-1, 2, 7)) for _ in range(3))
    ours, loaded = recipe.make_optimizer([weight]), recipe.make_optimizer([again])
    theirs = OPTIMISERS[name]([twin], recipe.learning_rate, weight_decay=0.01)
    steps(ours, weight, 0, 2)
    steps(theirs, twin, 0, 4)
    again.data.copy_(weight.data)
    loaded.load_state_dict(ours.state_dict())
    steps(loaded, again, 2, 4)
    assert torch.equal(again, twin)
    assert str(loaded.state_dict()) == str(theirs.state_dict())


def test_training_loads_no_compiler() -> None:
    """PyTorch's own optimisers load it, which takes a second or two in every process."""
    code = (
        "import sys\n"
        "from calibrant.data import load\n"
        "from calibrant.train import Recipe, train\n"
        "recipe = Recipe(epochs=1, optimizer='adamw', learning_rate=0.001)\n"
        "train(load('signals'), model='cnn1d', recipe=recipe, precision='fp32', train_size=256)\n"
        "from calibrant import Predictions\n"
        "from calibrant.calibrators import ConfidNet\n"
        "p = Predictions(logits=[[2.0, 0.0], [0.0, 1.0]] * 10, labels=[0, 0] * 10)\n"
        "ConfidNet(hidden=(4,), epochs=1).fit(p, features=p.logits)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_papers_recipes() -> None:
    mukhoti = RECIPES["mukhoti2020"]
    assert (mukhoti.epochs, mukhoti.batch_size, mukhoti.milestones) == (350, 128, (150, 250))
    assert RECIPES["mukhoti2020-sst"].optimizer == "adagrad"
    assert RECIPES["singh2021"].factor == 0.2
    news = RECIPES["wang2021-newsgroups"]  # section 5.1: the rate drops tenfold after 50 epochs
    assert news.rate(49 / news.epochs) == pytest.approx(10 * news.rate(51 / news.epochs))
    for recipe in RECIPES.values():
        assert recipe.make_optimizer([torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Recipe(epochs=0), "epochs"),
        (lambda: Recipe(optimizer="sdg"), "Did you mean 'sgd'"),
        (lambda: Recipe(learning_rate=-1), "learning_rate"),
        (lambda: Recipe(mixup=0.2, cutmix=1.0), "cutmix must be 0"),
        (lambda: Recipe(crop=4, resized_crop=0.08), "resized_crop must be"),
        (lambda: Recipe(resized_crop=8), "resized_crop must be"),
        (
            lambda: Recipe(epochs=3, plain_epochs=4),
            "plain_epochs must be a whole number from 0 to 3",
        ),
        (lambda: Recipe(nesterov=True, momentum=0), "momentum must be above 0"),
        (lambda: Recipe(milestones=5), "milestones must be a list"),
        (lambda: get_recipe("mukhoti"), "Did you mean 'mukhoti2020'"),
        (lambda: get_recipe("quick", epoch=3), "Did you mean 'epochs'"),
        (lambda: EarlyStopping("nnl"), "Did you mean 'nll'"),
        (lambda: choose_precision("fp16", "cpu"), "Did you mean"),
    ],
)
def test_bad_settings(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("capabilities", "chosen"),
    [
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": True}, "bf16"),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False}, "fp32"),
        ({"architecture": "x86_64", "avx2": True}, "fp32"),
        ({"architecture": "x86_64", "amx_bf16": True}, "bf16"),
        ({"architecture": "arm64", "neon": True, "bf16": False}, "fp32"),
        ({"architecture": "arm64", "neon": True, "bf16": True}, "bf16"),
    ],
)
def test_precision_is_what_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, Any], chosen: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert choose_precision("auto", "cpu") == chosen
    assert choose_precision("bf16", "cpu") == "bf16"
    assert choose_precision("fp32", "cpu") == "fp32"


def test_precision_of_other_devices_and_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    for has in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, has=has, **__: has)
        assert choose_precision("auto", "cuda") == ("bf16" if has else "fp32")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert choose_precision("auto", "cpu") == "fp32"


def two_layers(num_classes: int, size: tuple[int, ...]) -> torch.nn.Module:
    layers = torch.nn.Linear(math.prod(size), 16), torch.nn.ReLU(), torch.nn.Linear(16, num_classes)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


@pytest.mark.parametrize("network", ["cnn1d", two_layers])
def test_logits_are_not_rounded_to_bf16(signals: Dataset, tmp_path: Path, network: Any) -> None:
    """Rounded to 8 bits, confidences close to 1 would come in a few steps only."""
    recipe = SMALL.changed(epochs=1)
    trained = run(signals, model=network, recipe=recipe, precision="bf16", out=tmp_path)
    again = predict(tmp_path, signals, model=None if network == "cnn1d" else network)
    for p in (trained.predictions["test"], again):
        rounded = torch.from_numpy(np.array(p.logits)).bfloat16().float().numpy()
        assert np.mean(rounded != p.logits) > 0.9


# --- determinism and resuming -----------------------------------------------------------------


def test_same_seed_same_bits(signals: Dataset, whole) -> None:
    one, two, other = whole, run(signals), run(signals, seed=1)
    assert same(one, two)
    assert not same(one, other)
    assert one.split.hash != other.split.hash
    assert one.predictions["test"].num_samples == len(signals.y_test)
    assert one.predictions["calibration"].num_samples == len(one.split.calibration)


@pytest.mark.parametrize("objective", ["cross_entropy", "adafocal"])
def test_resume_gives_the_same_weights(
    signals: Dataset, whole, tmp_path: Path, objective: str
) -> None:
    """Stopped after each epoch by an error in the report, and begun again."""
    if objective != "cross_entropy":
        whole = run(signals, objective=objective)

    def interrupt(epoch: int, at: Any) -> None:
        if at.epoch == epoch and at.step > 3:
            raise KeyboardInterrupt

    for epoch in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            run(signals, objective=objective, out=tmp_path, report=partial(interrupt, epoch))
    resumed = run(signals, objective=objective, out=tmp_path)
    assert same(whole, resumed)
    np.testing.assert_array_equal(whole.learned, resumed.learned)
    for a, b in zip(whole.epochs, resumed.epochs, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == pytest.approx(
            {k: v for k, v in b.items() if "seconds" not in k}, nan_ok=True
        )


def test_a_network_is_prepared_with_training_samples_once(
    pictures: Dataset, tmp_path: Path
) -> None:
    """The filters of speednet: from training images only, left alone by steps and by resuming."""
    recipe = SMALL.changed(batch_size=16, epochs=2, flip=True)
    whole = run(pictures, model="speednet", recipe=recipe)
    images = Inputs(pictures, whole.split.train, "cpu").batch(
        "train", torch.from_numpy(whole.split.train)
    )
    twin = build("speednet", kind="image", num_classes=3, size=(3, 12, 12))
    twin.prepare(images)
    assert torch.equal(whole.model.whitening, twin.whitening)
    other = run(pictures, model="speednet", recipe=recipe, seed=1)
    assert not torch.equal(whole.model.whitening, other.model.whitening)

    def interrupt(at: Any) -> None:
        if at.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(pictures, model="speednet", recipe=recipe, out=tmp_path, report=interrupt)
    assert same(whole, run(pictures, model="speednet", recipe=recipe, out=tmp_path))
    again = predict(tmp_path, pictures)
    np.testing.assert_array_equal(again.logits, whole.predictions["test"].logits)


def test_a_network_given_as_an_object_is_not_prepared_again(pictures: Dataset) -> None:
    """It may have been trained with the filters that it has."""
    given = build("speednet", kind="image", num_classes=3, size=(3, 12, 12))
    trained = run(pictures, model=given, recipe=SMALL.changed(batch_size=16, epochs=1))
    assert torch.equal(trained.model.whitening, given.whitening)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "calibrant.cli", *arguments]


# The command, killed as soon as its third checkpoint is written.
KILLED = """
import os, signal
from calibrant.cli import main
from calibrant.train import _loop
real, saved = _loop.save_checkpoint, []
def save_checkpoint(*arguments):
    real(*arguments)
    saved.append(1)
    if len(saved) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
_loop.save_checkpoint = save_checkpoint
main()
"""


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """SIGKILL in the middle, the same command again: the same weights as without it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = ["train", "--data", "signals", "--model", "cnn1d", "--recipe", "quick", "--epochs", "8"]
    whole = subprocess.run(
        command(*line, "--out", str(tmp_path / "a")),
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "ECE" in whole.stdout
    killed = [sys.executable, "-c", KILLED, *line, "--out", str(tmp_path / "b")]
    done = subprocess.run(killed, env=env, check=False, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "b" / "checkpoint.pt").exists()
    assert not (tmp_path / "b" / "run.json").exists()
    subprocess.run(
        command(*line, "--out", str(tmp_path / "b")),
        env=env,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    one, two = (torch.load(tmp_path / k / "weights.pt", weights_only=True) for k in "ab")
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name])
    a, b = (Predictions.load(tmp_path / k / "test.npz") for k in "ab")
    np.testing.assert_array_equal(a.logits, b.logits)


def test_another_run_in_the_same_folder_is_refused(
    signals: Dataset, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    with pytest.raises(InputError, match="contains a run with another objective"):
        run(signals, out=tmp_path, objective="brier")
    torch.save({"model": {}}, tmp_path / "checkpoint.pt")  # whole, but not ours
    with pytest.raises(InputError, match=r"checkpoint\.pt"):
        run(signals, out=tmp_path)


@pytest.mark.parametrize(
    "damage",
    [*(pytest.param(d, marks=pytest.mark.slow) for d in ("empty", "garbage")), "cut", "flipped"],
)
def test_a_damaged_checkpoint_is_named_and_training_starts_again(
    signals: Dataset, whole, finished: Path, tmp_path: Path, damage: str
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # PyTorch itself loads this without a word
    changed = {"empty": b"", "garbage": b"broken", "cut": content[: len(content) // 2]}
    path.write_bytes(changed.get(damage, bytes(content)))
    with pytest.warns(CalibrationWarning, match=r"checkpoint\.pt is damaged"):
        again = run(signals, out=tmp_path)
    assert same(whole, again)


# --- records ----------------------------------------------------------------------------------


def test_record_of_an_epoch(signals: Dataset, whole, finished: Path) -> None:
    trained = whole
    table = pq.read_table(finished / "epochs.parquet")
    assert table.num_rows == 3
    last, p = trained.epochs[-1], trained.predictions["test"]
    assert last["final_test_samples"] == len(signals.y_test)
    assert last["final_test_nll"] == pytest.approx(metrics.nll(p))
    assert last["final_test_ece"] == pytest.approx(metrics.ece(p))
    assert last["final_test_error"] == pytest.approx(1 - metrics.accuracy(p))
    right = p.correct
    assert last["final_test_nll_incorrect"] == pytest.approx(-p.label_log_prob[~right].mean())
    assert last["final_test_entropy_correct"] == pytest.approx(p.entropy[right].mean())
    assert last["final_test_ece_correct"] == pytest.approx(
        (1 - p.confidence[right]).mean(), rel=1e-6
    )
    assert last["final_test_optimal_ece"] <= last["final_test_ece"] + 1e-12
    assert last["head_norm"] == pytest.approx(
        float(trained.model.head.weight.detach().norm()), rel=1e-5
    )
    assert last["final_test_max_logit"] == pytest.approx(p.logits.max(1).mean(), rel=1e-5)
    for name in ("train_nll", "train_entropy", "train_error", "train_ece", "seconds"):
        assert math.isfinite(last[name])
    assert np.load(finished / "learned.npy").shape == trained.split.train.shape
    assert table["final_test_ece"].null_count == 2  # of the final weights only
    assert table["test_ece"].null_count == 0


def test_every_epoch_is_recorded_on_the_same_test_samples(signals: Dataset) -> None:
    """The last one too: ECE is biased by the number of samples, so more of them would win."""
    order = np.argsort(signals.y_test, kind="stable")  # as test files often are
    ordered = replace(signals, x_test=signals.x_test[order], y_test=signals.y_test[order])
    seen: list[np.ndarray] = []
    trainer = _loop._Run.predict

    def noted(self, part, indices):
        if part == "test":
            seen.append(indices)
        return trainer(self, part, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loop._Run, "predict", noted)
        trained = run(ordered, recipe=SMALL.changed(epochs=2))
        run(ordered, recipe=SMALL.changed(epochs=1), seed=1)
        few = run(ordered, recipe=SMALL.changed(epochs=2), telemetry_samples=60)
    first, second, everything, other_seed, _, *chosen, _ = seen
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, other_seed)
    assert len(everything) == len(ordered.y_test)
    assert [row["test_samples"] for row in trained.epochs] == [len(first)] * 2 == [500] * 2
    assert [row["test_samples"] for row in few.epochs] == [len(c) for c in chosen] == [60, 60]
    assert set(chosen[0]) < set(first)
    # The record of the last epoch is that of the subset, computed anew from the final predictions.
    p = trained.predictions["test"].take(first)
    assert trained.epochs[-1]["test_ece"] == pytest.approx(metrics.ece(p), rel=1e-6)
    part, whole = (np.bincount(ordered.y_test[i], minlength=6) for i in (first, everything))
    assert part.sum() < whole.sum()
    assert np.abs(part - part.sum() * whole / whole.sum()).max() <= 1


def test_the_final_numbers_stand_beside_the_weights_that_are_kept(signals: Dataset) -> None:
    recipe = SMALL.changed(epochs=4, learning_rate=0.01)
    trained = run(signals, recipe=recipe, stop=EarlyStopping("accuracy", patience=4))
    scores = [row["calibration_accuracy"] for row in trained.epochs]
    kept = [k for k, row in enumerate(trained.epochs) if "final_test_nll" in row]
    assert kept == [int(np.argmax(scores))]
    found = trained.epochs[kept[0]]["final_test_nll"]
    assert found == pytest.approx(metrics.nll(trained.predictions["test"]))


def test_no_telemetry(signals: Dataset, whole) -> None:
    quiet = run(signals, telemetry=False)
    assert "test_nll" not in quiet.epochs[0]
    assert same(quiet, whole)  # looking changes nothing


def test_learned_epochs() -> None:
    """The first epoch from which a sample stays right."""
    record = TrainingRecord(4)
    right = [[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    for epoch, row in enumerate(right):
        z = torch.zeros(4, 2)
        z[torch.arange(4), torch.tensor(row)] = 1.0
        record.add(torch.arange(4), z, torch.ones(4, dtype=torch.int64))
        found = record.finish(epoch, lambda values: values)
        assert found["train_error"] == pytest.approx(1 - sum(row) / 4)
    assert record.learned.tolist() == [0, 1, 2, -1]


def test_record_of_saturated_predictions() -> None:
    p = Predictions(logits=[[200.0, 0.0], [0.0, 200.0]], labels=[0, 1])
    row = record_on_test(p)
    assert row["test_samples"] == 2
    assert row["test_nll"] < 1e-80
    assert math.isnan(row["test_nll_incorrect"])


# --- stopping and faults ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "by",
    [
        *(pytest.param(by, marks=pytest.mark.slow) for by in ("nll", "refinement")),
        "ece",
        "accuracy",
    ],
)
def test_early_stopping(signals: Dataset, by: Any) -> None:
    recipe = SMALL.changed(epochs=60, learning_rate=0.01)
    trained = run(signals, recipe=recipe, stop=EarlyStopping(by, patience=3), telemetry=False)
    scores = [row[f"calibration_{by}"] for row in trained.epochs]
    best = int(np.argmax(scores) if by == "accuracy" else np.argmin(scores))
    assert len(scores) < 60
    assert len(scores) == best + 1 + 3
    score = EarlyStopping(by).score(trained.predictions["calibration"])
    assert abs(score) == pytest.approx(scores[best], rel=1e-6)  # the weights of the best epoch


def test_a_loss_that_is_not_a_number(signals: Dataset, tmp_path: Path) -> None:
    recipe = SMALL.changed(optimizer="sgd", learning_rate=1e9, schedule="constant", epochs=5)
    with pytest.raises(TrainingError, match=r"In epoch 1, step \d+, .* became .*learning rate"):
        run(signals, recipe=recipe, out=tmp_path)


def test_fault_after_a_good_epoch_names_the_checkpoint(signals: Dataset, tmp_path: Path) -> None:
    recipe = SMALL.changed(
        optimizer="sgd", learning_rate=1e9, schedule="one_cycle", epochs=2000, batch_size=720
    )
    with pytest.raises(TrainingError, match="last good checkpoint, after epoch") as caught:
        run(signals, recipe=recipe, out=tmp_path, telemetry=False)
    assert str(tmp_path) in str(caught.value)
    assert (tmp_path / "checkpoint.pt").exists()


def test_weights_that_explode_in_the_last_step(signals: Dataset, tmp_path: Path) -> None:
    """Such weights are not a valid checkpoint, even without a training history."""
    recipe = SMALL.changed(
        optimizer="sgd", learning_rate=1e30, schedule="constant", batch_size=4096
    )
    for telemetry in (True, False):
        with pytest.raises(TrainingError, match=r"In epoch 1, .*(weight|gradient)"):
            run(signals, recipe=recipe, out=tmp_path / str(telemetry), telemetry=telemetry)
        assert not (tmp_path / str(telemetry) / "checkpoint.pt").exists()


def test_resume_keeps_the_number_format(
    signals: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A different choice, as on another machine, does not change a run."""
    from calibrant.train import _setup

    monkeypatch.setattr(_setup, "choose_precision", lambda *_: "bf16")
    short = {"precision": "auto", "recipe": SMALL.changed(epochs=1), "telemetry": False}
    run(signals, out=tmp_path, **short)
    monkeypatch.setattr(_setup, "choose_precision", lambda *_: "fp32")
    again = run(signals, out=tmp_path, **short)
    assert again.settings["precision"] == "bf16"


def test_disk_full(signals: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(signals, recipe=SMALL.changed(epochs=3), out=tmp_path / "whole")
    calls, real = [], torch.save

    def full(*args: Any, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            args[1].write(b"half a file")
            raise OSError(28, "No space left on device")
        real(*args, **kwargs)

    monkeypatch.setattr(_checkpoint.torch, "save", full)
    with pytest.raises(
        TrainingError, match=r"epoch 2 could not be written.*No space left.*is intact"
    ):
        run(signals, out=tmp_path / "cut")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["checkpoint.pt"]
    resumed = run(signals, out=tmp_path / "cut")
    whole = torch.load(tmp_path / "whole" / "weights.pt", weights_only=True)
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, whole[name])


# --- kinds of data and options ----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crop": 2, "flip": True},
        {"mixup": 0.2},
        {"cutmix": 1.0, "crop": 2, "flip": True},
        {"optimizer": "sgd", "nesterov": True, "clip": 1.0, "warmup": 1.0},
        {"optimizer": "adagrad"},
    ],
)
def test_images(pictures: Dataset, options: dict[str, Any]) -> None:
    recipe = SMALL.changed(batch_size=16, epochs=2, **options)
    one = run(pictures, model="resnet8", recipe=recipe)
    assert same(one, run(pictures, model="resnet8", recipe=recipe))
    assert all(math.isfinite(row["train_nll"]) for row in one.epochs)


def test_the_last_epochs_can_be_without_augmentation(
    pictures: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixing goes on: it belongs to the loss, and not to the images."""
    seen: dict[str, list[int]] = {"random_crop": [], "random_flip": [], "mixup": []}
    now = [-1]

    def note(name: str, real: Any, *arguments: Any, **options: Any) -> Any:
        seen[name].append(now[0])
        return real(*arguments, **options)

    for name in seen:
        real = getattr(_inputs, name)
        monkeypatch.setattr(_inputs, name, partial(note, name, real))
    real_epoch = _loop._Run.train_epoch

    def train_epoch(self: Any, *arguments: Any) -> None:
        now[0] = self.epoch
        real_epoch(self, *arguments)

    monkeypatch.setattr(_loop._Run, "train_epoch", train_epoch)
    recipe = Recipe(epochs=4, batch_size=64, crop=2, flip=True, mixup=0.2, plain_epochs=3)
    trained = run(pictures, model="resnet8", recipe=recipe, telemetry=False)
    assert seen == {"random_crop": [0], "random_flip": [0], "mixup": [0, 1, 2, 3]}
    assert trained.settings["recipe"]["plain_epochs"] == 3


def test_random_resized_crops(pictures: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    ramp = torch.arange(40.0).expand(6, 1, 40, 40)
    found = random_resized_crop(ramp, smallest=0.1, generator=generator)
    assert found.shape == ramp.shape
    assert torch.equal(found[:, :, 0], found[:, :, -1])  # rows stay alike
    steps = found[:, 0, 0, 5:-5].diff(dim=1)
    assert (steps > 0).all()
    assert steps.mean() < 0.9  # part of the range, stretched
    whole = random_resized_crop(ramp, smallest=1.0, generator=generator)
    assert (whole - ramp).abs().mean() < 6
    with pytest.raises(InputError, match="smallest must be above 0"):
        random_resized_crop(ramp, smallest=0)
    seen: list[float] = []
    monkeypatch.setattr(
        "calibrant.train._inputs.random_resized_crop",
        lambda x, *, smallest, generator: seen.append(smallest) or x,
    )
    train(pictures, model="resnet8", recipe=Recipe(epochs=1, resized_crop=0.3), telemetry=False)
    assert seen == [0.3]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("objective", ["focal + 0.5*mmce", "adafocal + correctness_ranking"])
def test_objectives(pictures: Dataset, precision: str, objective: str) -> None:
    recipe = SMALL.changed(batch_size=16, epochs=2)
    trained = run(
        pictures, model="resnet8", recipe=recipe, objective=objective, precision=precision
    )
    assert trained.settings["precision"] == precision
    assert trained.predictions["test"].logits.dtype == np.float32


@pytest.mark.slow
def test_compiled_is_the_same_network(signals: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda net: real(net, backend="eager"))
    recipe = SMALL.changed(epochs=1)
    one = run(signals, recipe=recipe, compiled=True)
    two = run(signals, recipe=recipe)
    for a, b in zip(weights(one), weights(two), strict=True):
        assert_close(a, b)


@pytest.mark.slow
def test_overfits_signals(signals: Dataset) -> None:
    """The quick study's premise: cross-entropy becomes overconfident within seconds."""
    trained = run(signals, recipe=get_recipe("quick", epochs=60), telemetry=False)
    p = trained.predictions["test"]
    assert trained.epochs[-1]["train_error"] < 0.1
    assert metrics.mean_confidence(p) > metrics.accuracy(p) + 0.05
    assert metrics.ece(p) > 0.05


# --- predictions ------------------------------------------------------------------------------


def test_word_vectors_are_where_training_starts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 9, (40, 12)), np.arange(40) % 2
    vectors = rng.normal(size=(9, 5)).astype(np.float32)
    meta = {"vocabulary_size": 9, "vectors": vectors}
    data = Dataset("words", "tokens", x, y, x, y, ("a", "b"), meta)
    recipe = SMALL.changed(epochs=1, learning_rate=1e-9)
    trained = run(data, model="textcnn", recipe=recipe, out=tmp_path / "run", calibration=8)
    start = trained.model.embedding.weight.detach().numpy()
    np.testing.assert_allclose(start, vectors, atol=1e-6)
    again = predict(tmp_path / "run", data, part="test")
    np.testing.assert_array_equal(again.logits, trained.predictions["test"].logits)
    with pytest.raises(InputError, match="dimensions must be 5, the size of the word vectors"):
        run(data, model="textcnn", model_options={"dimensions": 7})


def test_predict(signals: Dataset, whole, finished: Path, tmp_path: Path) -> None:
    trained = whole
    for part in ("test", "calibration"):
        again = predict(finished, signals, part=part)
        np.testing.assert_array_equal(again.logits, trained.predictions[part].logits)
        np.testing.assert_array_equal(again.labels, trained.predictions[part].labels)
    assert predict(finished, signals, part="train").num_samples == len(trained.split.train)
    shifted = predict(finished, signals, shift=(signals.x_test[:7], signals.y_test[:7]))
    np.testing.assert_allclose(shifted.logits, trained.predictions["test"].logits[:7], atol=1e-5)
    with pytest.raises(InputError, match="must be the data the run was trained on"):
        predict(finished, load("signals", seed=5))
    with pytest.raises(InputError, match="finished run"):
        read_run(tmp_path / "none")


def test_command_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = call(
        "train",
        "--data",
        "signals",
        "--model",
        "cnn1d",
        "--recipe",
        "quick",
        "--epochs",
        "2",
        "--objective",
        "focal:gamma=3",
        "--seed",
        "1",
        "--out",
        str(out),
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    preds = tmp_path / "p.npz"
    done = call("predict", str(out), "--data", "signals", "--split", "test", "--out", str(preds))
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(
        Predictions.load(preds).logits, Predictions.load(out / "test.npz").logits
    )
    done = call("train", "--data", "signals", "--model", "resnet20", "--out", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "must take data of the kind 'signal'" in done.stderr
    done = call("train", "--data", "signals", "--stop", "loss", "--out", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "--stop must be 'nll', 'ece', 'refinement' or 'accuracy'; got 'loss'" in done.stderr
    done = call("train", "--data", "nothing", "--out", str(tmp_path / "x"))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "signals" in call("data", "list").stdout


WHOLE = {"500": 500, "1": 1, "0": 0, "0.1": 0.1, "0.999": 0.999, "dev": "dev"}
REFUSED = ("500.7", "1.0", "500.0", "5e2", "0.0", "-3", "-0.1", "nan", "inf", "half", "")


@pytest.mark.parametrize("text", [*WHOLE, *REFUSED])
def test_calibration_is_a_share_or_a_whole_number(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the way it is written: a whole number counts samples, a decimal point makes a share."""
    seen = []

    def stop(*_: Any, calibration: float | int, **__: Any) -> None:
        seen.append(calibration)
        raise TrainingError("enough")

    monkeypatch.setattr("calibrant.train.train", stop)
    line = ["train", "--data", "signals", "--out", str(tmp_path / "x"), f"--calibration={text}"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 2
    if text in WHOLE:
        assert seen == [WHOLE[text]]
        assert type(seen[0]) is type(WHOLE[text])
    else:
        assert seen == []
        assert (
            "--calibration must be a fraction between 0 and 1, or an integer number" in done.stderr
        )


# --- several processes ------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_equal_one(signals: Dataset, tmp_path: Path) -> None:
    """torchrun with two processes: the same loss curve, and evaluation merged exactly."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [
        "-m",
        "calibrant.cli",
        "train",
        "--data",
        "signals",
        "--model",
        "cnn1d",
        "--recipe",
        "quick",
        "--epochs",
        "3",
        "--objective",
        "cross_entropy + 0.5*mmce",
        "--calibration",
        "80",
        "--precision",
        "fp32",
        "--out",
        str(tmp_path / "two"),
    ]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "--local-addr",
        "127.0.0.1",
    ]
    done = subprocess.run(
        [*launcher, *line], env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one = run(
        signals,
        recipe=get_recipe("quick", epochs=3),
        calibration=80,
        objective="cross_entropy + 0.5*mmce",
        precision="fp32",
    )
    table = pq.read_table(tmp_path / "two" / "epochs.parquet").to_pylist()
    for a, b in zip(one.epochs, table, strict=True):
        assert b["test_nll"] == pytest.approx(a["test_nll"], abs=1e-4)
        assert b["test_ece"] == pytest.approx(a["test_ece"], abs=1e-3)
        for name in ("train_nll", "train_error", "train_entropy_incorrect"):
            assert b[name] == pytest.approx(a[name], abs=1e-4)
    np.testing.assert_array_equal(np.load(tmp_path / "two" / "learned.npy"), one.learned)
    p = Predictions.load(tmp_path / "two" / "test.npz")
    again = predict(tmp_path / "two", signals)  # all rows come from the weights that were kept
    np.testing.assert_allclose(p.logits, again.logits, atol=1e-5)
    assert p.num_samples == len(signals.y_test)
    np.testing.assert_array_equal(p.labels, signals.y_test)
    np.testing.assert_allclose(p.logits, one.predictions["test"].logits, atol=2e-3)


@pytest.mark.parametrize("command", [("train", "--model", "mlp"), ("data", "features")])
def test_commands_name_the_option_of_an_unknown_data_set(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = call(*command, "--data", "cifar11", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--data must be a known data set" in done.stderr
    assert "Did you mean 'cifar10'?" in done.stderr
