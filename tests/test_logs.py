"""Logs of language-model evaluations, written by the tools themselves (``tests/make_logs.py``).

``CALIBRANT_LOGS`` names a folder with other logs of the same questions: ``make test-logs``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from calibrant import Confidences, InputError, Predictions, load, measure, metrics
from tests.command import call

LOGS = Path(os.environ.get("CALIBRANT_LOGS", Path(__file__).parent / "logs"))
SAID = "scores.answered.metadata.confidence"


def log_of(task: str) -> Path:
    (path,) = LOGS.glob(f"samples_{task}_*.jsonl")
    return path


def rows_of(task: str) -> list[dict]:
    return [json.loads(line) for line in log_of(task).read_text(encoding="utf-8").splitlines()]


def inspect_json() -> dict:
    return json.loads((LOGS / "quiz.json").read_text(encoding="utf-8"))


def test_multiple_choice_of_lm_eval_agrees_with_its_own_accuracies() -> None:
    rows = rows_of("quiz")
    p = load(log_of("quiz"))
    assert isinstance(p, Predictions)
    assert p.labels.tolist() == [row["doc"]["answer"] for row in rows]
    assert p.correct.tolist() == [row["acc"] == 1 for row in rows]
    assert load(log_of("quiz"), normalise="byte").correct.tolist() == [
        row["acc_bytes"] == 1 for row in rows
    ]
    for probs, row in zip(p.probs, rows, strict=True):
        each = np.exp([float(value) for value, _ in row["filtered_resps"]])
        np.testing.assert_allclose(probs[: len(each)], each / each.sum())
        assert not probs[len(each) :].any()
    assert set(p.groups["task"]) == {"quiz"}
    assert p.clusters.tolist() == [f"quiz/{row['doc_id']}" for row in rows]
    said = str(measure(p, intervals=False))
    assert "softmax of log-likelihoods as they are" in said
    assert "Questions have 4 to 5 options; absent ones have probability 0." in said


def test_per_byte_divides_by_the_bytes_of_the_option() -> None:
    p = load(log_of("quiz"), normalise="byte")
    row = rows_of("quiz")[2]  # éé takes four bytes
    assert row["doc"]["options"][0] == "ééoption A"
    scores = [float(value) for value, _ in row["filtered_resps"]]
    each = np.exp(np.array(scores) / len("ééoption A".encode()))
    np.testing.assert_allclose(p.probs[2, : len(each)], each / each.sum())
    with pytest.raises(InputError, match="number of tokens of each option for normalise='token'"):
        load(log_of("quiz"), normalise="token")


def test_unconditional_requests_are_no_options() -> None:
    """acc_mutual_info asks for every option a second time, without the question."""
    rows = rows_of("mutual")
    p = load(log_of("mutual"))
    assert len(rows[0]["resps"]) == 2 * len(rows[0]["doc"]["options"])
    assert p.num_classes == 5
    assert p.correct.tolist() == [row["acc"] == 1 for row in rows]


def test_options_in_the_context() -> None:
    """The target is the same text for both options, as in Winogrande; the accuracy tells."""
    rows = rows_of("blank")
    p = load(log_of("blank"))
    assert p.labels.tolist() == [row["doc"]["which"] for row in rows]
    assert p.correct.tolist() == [row["acc"] == 1 for row in rows]


def test_what_a_log_cannot_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"12 without log-likelihoods \(generated text\)"):
        load(log_of("said"))
    row = rows_of("quiz")[0]
    name = "samples_quiz.jsonl"
    (tmp_path / name).write_text(json.dumps(row | {"target": "no option"}))
    with pytest.raises(InputError, match="must be the number or the text of an option"):
        load(tmp_path / name)
    several = [row, row | {"target": "[0, 2]", "doc_id": 99}]
    (tmp_path / name).write_text("\n".join(map(json.dumps, several)))
    with pytest.raises(InputError, match="1 with several right options"):
        load(tmp_path / name)
    p = load(tmp_path / name, skip_unparsable=True)
    assert "1 of 2 questions are left out: 1 with several right" in p.meta["notes"][1]
    one = row | {"filtered_resps": row["filtered_resps"][:1], "arguments": {}, "target": "0"}
    (tmp_path / name).write_text("\n".join(map(json.dumps, (row, one))))
    with pytest.raises(InputError, match=r"got 1 with a single option.*skip_unparsable=True"):
        load(tmp_path / name)
    assert len(load(tmp_path / name, skip_unparsable=True)) == 1
    (tmp_path / name).write_text(json.dumps(row | {"arguments": {}, "target": "0"}))
    with pytest.raises(
        InputError, match=r"bytes of each option.* Log samples with their arg\w+\.$"
    ):
        load(tmp_path / name, normalise="byte")
    (tmp_path / "samples_b.jsonl").write_text(json.dumps(row | {"target": "99"}))
    with pytest.raises(InputError, match=r"samples_b\.jsonl must have the number of an option"):
        load(tmp_path / "samples_*.jsonl")


def test_several_tasks_by_a_pattern() -> None:
    done = call("measure", LOGS / "samples_[qm]*.jsonl", "--by", "task", "--no-intervals")
    assert done.returncode == 0, done.stderr
    assert "mutual" in done.stdout
    assert "quiz" in done.stdout


@pytest.mark.parametrize("name", ["quiz.eval", "quiz.json"])
def test_log_probabilities_of_inspect(name: str) -> None:
    whole = inspect_json()
    p = load(LOGS / name)
    stated = whole["results"]["scores"][0]["metrics"]["accuracy"]["value"]
    assert metrics.accuracy(p) == pytest.approx(stated)
    for k, sample in enumerate(whole["samples"]):
        last = sample["output"]["choices"][0]["logprobs"]["content"][-1]["top_logprobs"]
        found = {option["token"].strip(): option["logprob"] for option in last}
        each = np.exp([found[letter] for letter in "ABCDE"[: len(sample["choices"])]])
        np.testing.assert_allclose(p.probs[k, : len(each)], each / each.sum())
        assert p.labels[k] == "ABCDE".index(sample["target"])
    assert p.clusters[0] == "quiz/0"


def test_stated_confidences_of_inspect() -> None:
    with pytest.raises(InputError, match="got samples without log-probabilities"):
        load(LOGS / "stated.eval")
    with pytest.raises(InputError, match=r"has no field 'metadata\.confidence'"):
        load(LOGS / "stated.eval", confidence_column="metadata.confidence")
    with pytest.raises(InputError, match=r"got 'I cannot say' .*skip_unparsable=True"):
        load(LOGS / "stated.eval", confidence_column=SAID, percent=True)
    c = load(LOGS / "stated.eval", confidence_column=SAID, percent=True, skip_unparsable=True)
    assert isinstance(c, Confidences)
    assert set(c.confidence.tolist()) == {0.6, 0.9}
    assert 0 < c.correct.sum() < len(c)
    assert "of 12 answers could not be read" in c.meta["notes"][0]
    with pytest.raises(InputError, match="has no scorer 'answer'"):
        load(LOGS / "stated.eval", confidence_column=SAID, scorer="answer")


def test_commands_read_logs(tmp_path: Path) -> None:
    log = LOGS / "quiz.eval"
    few = ("--replicates", 20)
    for command in (
        ("measure", log, *few),
        ("compare", log, LOGS / "quiz.json", "--metrics", "nll", *few),
        (
            "calibrate",
            "--fit",
            log,
            "--method",
            "temperature",
            "--apply",
            log,
            "--out",
            tmp_path / "c.npz",
            *few,
        ),
        ("decompose", log),
    ):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    after = load(tmp_path / "c.npz")
    assert not after.probs[~np.isfinite(load(log).logits)].any()
