"""Sample logs of lm-evaluation-harness: multiple choice by log-likelihood."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant._core.checks import InputError, refuse
from calibrant._core.files import clear_errors
from calibrant.io._columns import FILE_NOTES, Columns
from calibrant.io._jsonl import Row, field
from calibrant.io._layout import Layout
from calibrant.io._options import LEAST_OPTIONS, Questions

NEEDED = ("doc_id", "resps", "target")
_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[-\d.:]+\Z")
NORMALISED = {
    "raw": "log-likelihoods as they are",
    "byte": "log-likelihoods per byte",
    "token": "log-likelihoods per token",
}


def is_lm_eval(row: Row) -> bool:
    """Whether an object is a sample of lm-evaluation-harness."""
    return all(name in row for name in NEEDED)


def lm_eval_columns(files: Mapping[str, Sequence[Row]], layout: Layout) -> Columns:
    """Questions of one or more logs, by file name; tasks are groups, documents are clusters."""
    where = next(iter(files))
    questions = Questions(where)
    for name, rows in files.items():
        task = task_of(name)
        with clear_errors(name, "a log of lm-evaluation-harness"):
            questions.where = name
            for row in rows:
                _add(questions, row, task, layout)
    questions.where = where
    how = f"Option probabilities: softmax of {NORMALISED[layout.normalise]}."
    columns = questions.columns(layout, {"source": "lm-evaluation-harness"})
    columns.meta[FILE_NOTES] = [how, *columns.meta.get(FILE_NOTES, [])]
    return columns


def task_of(name: str) -> str:
    """The task in the name of a log.

    >>> task_of("samples_arc_easy_2026-11-16T00-00-00.000000.jsonl")
    'arc_easy'
    """
    stem = Path(name).name.removesuffix(".gz").removesuffix(".jsonl")
    match = _NAME.match(stem)
    return match["task"] if match else stem.removeprefix("samples_")


def _add(questions: Questions, row: Row, task: str, layout: Layout) -> None:
    document = f"{task}/{row['doc_id']}"
    requests = _requests(row)
    responses = row.get("filtered_resps", row["resps"])
    if _has_unconditional(requests):  # what each option is worth without the question
        requests = requests[: len(requests) // 2]
        responses = responses[: len(requests)]
    values = [_log_likelihood(response) for response in responses]
    if any(value is None for value in values):
        questions.skip("without log-likelihoods (generated text)")
        return
    known = [value for value in values if value is not None]
    if not all(math.isfinite(value) for value in known):
        questions.skip("with log-likelihoods that are not finite")
        return
    texts = [text for _, text in requests]
    label = _target(row, texts, known, document)
    if label is None:
        questions.skip("with several right options")
        return
    if len(known) < LEAST_OPTIONS:
        questions.skip("with a single option")
        return
    sizes = _sizes(row, texts, len(known), layout.normalise)
    logits = [value / size for value, size in zip(known, sizes, strict=True)]
    questions.add(logits, label, document, task)


def _log_likelihood(response: Any) -> float | None:
    """The first number of ``[log-likelihood, is greedy]``, however deeply it is wrapped."""
    while isinstance(response, list) and response and isinstance(response[0], list):
        response = response[0]
    if not isinstance(response, list) or not response or isinstance(response[0], bool):
        return None
    try:
        return float(response[0])
    except (TypeError, ValueError):
        return None


def _requests(row: Row) -> list[tuple[str, str]]:
    """Context and option of each request, without the space between; empty if not in the log."""
    given = row.get("arguments")
    parts = list(given.values()) if isinstance(given, Mapping) else given
    if not isinstance(parts, list):
        return []
    pairs = [(p.get("arg_0"), p.get("arg_1")) if isinstance(p, Mapping) else p[:2] for p in parts]
    return [(str(context), str(text).strip()) for context, text in pairs]


def _has_unconditional(requests: list[tuple[str, str]]) -> bool:
    """Whether every option is asked for a second time, without a context (acc_mutual_info)."""
    half = len(requests) // 2
    first, second = requests[:half], requests[half:]
    asked_again = [text for _, text in first] == [text for _, text in second]
    without = not any(context for context, _ in second)
    return bool(first) and asked_again and without and all(context for context, _ in first)


def _sizes(row: Row, texts: list[str], count: int, normalise: str) -> list[float]:
    """What each log-likelihood is divided by."""
    if normalise == "raw":
        return [1.0] * count
    if normalise == "byte":
        sizes = [float(len(text.encode())) for text in texts]
    else:
        found = field(row, "num_tokens") or field(row, "doc.num_tokens") or []
        sizes = [float(size) for size in found]
    if len(sizes) != count or not all(size > 0 for size in sizes):
        rule = f"must tell the number of {normalise}s of each option for normalise={normalise!r}"
        with_tokens = "Add a field num_tokens with one number per option."
        advice = "Log samples with their arguments." if normalise == "byte" else with_tokens
        raise refuse("log", rule, f"got none for document {row['doc_id']}", advice)
    return sizes


def _target(row: Row, texts: list[str], values: list[float], document: str) -> int | None:
    """The number of the right option: given as a number, or as its text; None for several."""
    target = row["target"]
    if isinstance(target, (int, str)) and not isinstance(target, bool):
        text = str(target).strip()
        if re.fullmatch(r"\d{1,6}", text):
            return int(text)
        if re.fullmatch(r"\[\d+(, \d+)+\]", text):
            return None
        if texts.count(text) == 1:
            return texts.index(text)
        if len(texts) == len(values) == 2 == texts.count(text) and row.get("acc") in (0, 1):  # noqa: PLR2004
            # The options are in the contexts. The better one is right exactly if acc is 1.
            return int(values[1] > values[0]) ^ int(row["acc"] == 0)
    raise InputError(
        f"target of document {document} must be the number or the text of an option; got "
        f"{str(target)[:60]!r}. Check the task."
    )
