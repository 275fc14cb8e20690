"""Write the evaluation logs of tests/logs with the tools themselves, offline.

    python tests/make_logs.py FOLDER

Each tool runs if it is installed: Inspect with its mock model, lm-evaluation-harness with its dummy
model and a local task. ``make test-logs`` installs both in an environment of their own, writes new
logs and runs ``tests/test_logs.py`` on them.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

QUESTIONS = 12
LETTERS = "ABCDE"


def questions() -> list[dict[str, Any]]:
    """Every other one has a fifth option."""
    rng = random.Random(0)
    rows = []
    for k in range(QUESTIONS):
        options = [f"{'é' * (k % 3)}option {letter}" for letter in LETTERS[: 4 + k % 2]]
        answer = rng.randrange(len(options))
        pair = [f"In question {k} the {word}" for word in ("first", "second")]
        row = {"question": f"Question {k}?", "options": options, "answer": answer}
        rows.append(row | {"pair": pair, "which": rng.randrange(2), "rest": "was meant."})
    return rows


def inspect_logs(folder: Path) -> None:
    """quiz.eval and quiz.json with log-probabilities; stated.eval with stated confidences."""
    from inspect_ai import Task
    from inspect_ai import eval as run
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import get_model
    from inspect_ai.scorer import choice
    from inspect_ai.solver import multiple_choice

    rng = random.Random(1)
    asked = [(LETTERS[: len(row["options"])], LETTERS[row["answer"]]) for row in questions()]
    samples = [
        Sample(input=row["question"], choices=row["options"], target=truth, id=k)
        for k, (row, (_, truth)) in enumerate(zip(questions(), asked, strict=True))
    ]
    answers = iter([_answer(rng, letters, truth) for letters, truth in asked])
    stated = iter([_stated(rng, letters) for letters, _ in asked])
    for name, outputs, scorer in (("quiz", answers, choice()), ("stated", stated, _confident())):
        task = Task(MemoryDataset(samples), solver=multiple_choice(), scorer=scorer, name=name)
        model = get_model("mockllm/model", custom_outputs=outputs)
        (log,) = run(task, model=model, log_dir=str(folder / "raw"), display="none", max_samples=1)
        assert log.status == "success", log.error
        shutil.copy(log.location, folder / f"{name}.eval")
    whole = read_eval_log(str(folder / "quiz.eval"))
    for sample in whole.samples:
        sample.events, sample.attachments = [], {}
    write_eval_log(whole, str(folder / "quiz.json"), format="json")
    shutil.rmtree(folder / "raw")


def _output(text: str, content: list[Any]) -> Any:
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        Logprobs,
        ModelOutput,
        ModelUsage,
    )

    message = ChatMessageAssistant(content=text, source="generate")
    logprobs = Logprobs(content=content) if content else None
    choice = ChatCompletionChoice(message=message, stop_reason="stop", logprobs=logprobs)
    # With its usage given, the mock model does not download a tokenizer to count tokens.
    usage = ModelUsage(input_tokens=9, output_tokens=3, total_tokens=12)
    return ModelOutput(model="mockllm/model", choices=[choice], usage=usage)


def _answer(rng: random.Random, letters: str, truth: str) -> Any:
    """``ANSWER: C``, where the last token has the log-probability of every letter."""
    from inspect_ai.model import Logprob, TopLogprob

    z = [rng.gauss(1.5 if letter == truth else 0.0, 1.5) for letter in letters]
    total = math.log(sum(map(math.exp, z)))
    found = {letter: value - total for letter, value in zip(letters, z, strict=True)}
    best = max(found, key=lambda letter: found[letter])
    words = [Logprob(token=w, logprob=-0.01, top_logprobs=[]) for w in ("ANSWER", ":")]
    options = [TopLogprob(token=f" {letter}", logprob=v) for letter, v in found.items()]
    last = Logprob(token=f" {best}", logprob=found[best], top_logprobs=options)
    return _output(f"ANSWER: {best}", [*words, last])


def _stated(rng: random.Random, letters: str) -> Any:
    confidence = rng.choice(["90%", "60 %", "I cannot say"])
    return _output(f"CONFIDENCE: {confidence}\nANSWER: {rng.choice(letters)}", [])


def _confident() -> Any:
    """A scorer that keeps the stated confidence."""
    from inspect_ai.scorer import Score, accuracy, scorer

    @scorer(metrics=[accuracy()], name="answered")
    def answered() -> Any:
        async def score(state: Any, target: Any) -> Any:
            text = state.output.completion
            said = text.split("CONFIDENCE: ")[1].splitlines()[0]
            right = text.rsplit("ANSWER: ")[-1].strip() == target.text
            return Score(value="C" if right else "I", metadata={"confidence": said})

        return score

    return answered()


def lm_eval_logs(folder: Path) -> None:
    """Logs of multiple choice in three forms, and one of generated text."""
    os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker

    data = folder / "quiz_data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in questions()), encoding="utf-8")
    shared = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
    }
    chosen = shared | {
        "output_type": "multiple_choice",
        "doc_to_choice": "{{options}}",
        "doc_to_target": "answer",
    }
    measured = {"quiz": ["acc", "acc_norm", "acc_bytes"], "mutual": ["acc", "acc_mutual_info"]}
    tasks = [
        chosen | {"task": name, "metric_list": [{"metric": metric} for metric in names]}
        for name, names in measured.items()
    ]
    blank = {"task": "blank", "metric_list": [{"metric": "acc"}], "doc_to_text": "which"}
    tasks.append(chosen | blank | {"doc_to_choice": "pair", "doc_to_target": "rest"})
    said = shared | {"task": "said", "output_type": "generate_until", "doc_to_target": "answer"}
    tasks.append(said | {"metric_list": [{"metric": "exact_match"}]})
    found = simple_evaluate(model="dummy", tasks=tasks, log_samples=True, random_seed=0)
    tracker = EvaluationTracker(output_path=str(folder / "raw"))
    tracker.general_config_tracker.model_name_sanitized = "dummy"
    tracker.date_id = "2026-01-01T00-00-00.000000"
    for task, samples in found["samples"].items():
        tracker.save_results_samples(task, samples)
    for file in (folder / "raw" / "dummy").glob("samples_*.jsonl"):
        shutil.move(file, folder / file.name)
    shutil.rmtree(folder / "raw")
    data.unlink()


def main() -> None:
    """Write the logs of every tool that is installed."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    for package, write in (("inspect_ai", inspect_logs), ("lm_eval", lm_eval_logs)):
        if importlib.util.find_spec(package):
            write(folder)


if __name__ == "__main__":
    main()
