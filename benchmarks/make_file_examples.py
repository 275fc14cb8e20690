"""Make the simulated example files of docs/files.md and docs/language_models.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
ANIMALS = np.array(["cat", "dog", "eel"])
ROWS = 240


def softmax(z: np.ndarray) -> np.ndarray:
    each = np.exp(z - z.max(axis=1, keepdims=True))
    return each / each.sum(axis=1, keepdims=True)


def drawn(rng: np.random.Generator, z: np.ndarray, temperature: float) -> np.ndarray:
    """Labels of a model that should have divided its logits by ``temperature``."""
    return (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)


def write(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], sign: str = ",") -> None:
    lines = [sign.join(map(str, row)) for row in (head, *rows)]
    (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def animals(rng: np.random.Generator) -> None:
    """Three classes with names, rounded to two decimals, with a site and a camera per image."""
    z = rng.normal(0, 2, (ROWS, 3))
    labels, probs = drawn(rng, z, 1.6), softmax(z).round(2)
    head = ["image", "truth", *(f"p_{name}" for name in ANIMALS), "site", "camera"]
    rows = (
        [f"{k:04}.jpg", ANIMALS[labels[k]], *probs[k], ("north", "south")[k % 2], k // 8]
        for k in range(ROWS)
    )
    write("animals.csv", head, rows)


def risks(rng: np.random.Generator) -> None:
    """The risk of one outcome in per cent, as a German spreadsheet saves it."""
    z = rng.normal(-1, 1.5, ROWS)
    happened = rng.random(ROWS) < 1 / (1 + np.exp(-0.6 * z))
    shown = (f"{100 / (1 + np.exp(-value)):.1f}".replace(".", ",") for value in z)
    pairs = zip(np.where(happened, "yes", "no"), shown, strict=True)
    write("risks.csv", ["ill", "risk"], pairs, ";")


def answers(rng: np.random.Generator) -> None:
    """Confidences that a language model states in words."""
    stated = rng.choice([60, 70, 80, 90, 95, 100], ROWS)
    right = rng.random(ROWS) < 0.25 + stated / 200
    shown = [f"{value}%" for value in stated]
    shown[7] = shown[60] = "I would rather not say"
    shown[33] = ""
    with (FOLDER / "answers.jsonl").open("w", encoding="utf-8") as file:
        for k in range(ROWS):
            verdict = {"correct": "yes" if right[k] else "no"}
            row = {"question": f"Question {k}", "confidence": shown[k], "judge": verdict}
            file.write(json.dumps(row) + "\n")


def quiz(rng: np.random.Generator) -> None:
    """Multiple choice in the layout of lm-evaluation-harness, with four or five options."""
    for task, sharpness in (("history", 2.0), ("physics", 1.5)):
        path = FOLDER / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for k in range(ROWS // 2):
                z = rng.normal(0, sharpness, (1, 4 + k % 2))
                answer, scores = int(drawn(rng, z, 1.7)[0]), (z[0] - 12).round(3)
                given = [[str(score), "False"] for score in scores]
                asked = {
                    f"gen_args_{j}": {"arg_0": f"Question {k}?", "arg_1": f" {letter}"}
                    for j, letter in enumerate("ABCDE"[: len(given)])
                }
                row = {"doc_id": k, "target": str(answer), "arguments": asked}
                row |= {"filtered_resps": given, "resps": [[pair] for pair in given]}
                file.write(json.dumps(row) + "\n")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for make in (animals, risks, answers, quiz):
        make(rng)


if __name__ == "__main__":
    main()
