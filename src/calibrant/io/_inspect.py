"""Logs of Inspect: .eval archives and .json files."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from calibrant._core.belonging import CLUSTERS, GROUP_PREFIX
from calibrant._core.checks import near_name, refuse
from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import PARSED, check_size
from calibrant.io._columns import Columns
from calibrant.io._jsonl import Row, field, rows_columns
from calibrant.io._layout import Layout
from calibrant.io._options import Questions
from calibrant.io._text import check_parsed, opened_text

ZSTD = 93  # the compression of zip files that Python's own module does not read
LOCAL_HEADER = 30
CALIBRATOR = "calibrant.calibrator"


def read_eval(path: Path, layout: Layout) -> Columns:
    """An .eval log: a zip archive with one JSON file per sample."""
    with clear_errors(path, "an Inspect log"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        check_size(PARSED * sum(info.file_size for info in infos), path.name)
        if "header.json" not in archive.namelist():
            raise damaged(path.name, "holds no header.json")
        header = json.loads(_member(archive, path, archive.getinfo("header.json")))
        samples = [
            json.loads(_member(archive, path, info))
            for info in infos
            if info.filename.startswith("samples/") and info.filename.endswith(".json")
        ]
        return _columns(header, samples, path.name, layout)


def read_json(path: Path, layout: Layout) -> Columns:
    """A .json log of Inspect, or a list of objects, one per sample."""
    with clear_errors(path, "JSON"), opened_text(path) as stream:
        check_parsed(stream, path)
        data = json.loads(stream.read())
        if isinstance(data, dict) and data.get("schema") == CALIBRATOR:
            rule, advice = "must hold predictions", "Read it with calibrant.load_calibrator."
            raise refuse(path.name, rule, "got a calibrator", advice)
        if isinstance(data, dict) and "eval" in data:
            return _columns(data, data.get("samples") or [], path.name, layout)
        if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
            return rows_columns(data, path.name, layout)
    rule = "must be an Inspect log or a list of objects"
    raise refuse(path.name, rule, f"got {type(data).__name__}", "Write JSON lines instead.")


def _member(archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo) -> bytes:
    """The contents of a member, compressed in any way that Inspect uses."""
    if info.compress_type != ZSTD:
        return archive.read(info)
    import pyarrow as pa

    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        head = stream.read(LOCAL_HEADER)
        if len(head) != LOCAL_HEADER or head[:4] != b"PK\x03\x04":
            raise damaged(path.name, f"has no {info.filename} where its index says")
        skip = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        stream.seek(skip, 1)
        packed = stream.read(info.compress_size)
    unpacked = bytes(pa.decompress(packed, info.file_size, codec="zstd", asbytes=True))
    if zlib.crc32(unpacked) != info.CRC:
        raise damaged(path.name, f"holds another {info.filename} than its checksum says")
    return unpacked


def _columns(header: Any, samples: Sequence[Row], where: str, layout: Layout) -> Columns:
    if not samples:
        rule, advice = "must hold samples", "Run the evaluation with log_samples=True."
        raise refuse(where, rule, "got none", advice)
    task = str(field(header, "eval.task") or "task")
    if layout.confidence_column is not None:
        return _confidences(samples, task, where, layout)
    questions = Questions(where)
    for sample in samples:
        found = _option_scores(sample)
        if isinstance(found, str):
            questions.skip(found)
        else:
            questions.add(found, _target(sample, where), _document(sample, task), task)
    if not questions.logits and not layout.skip_unparsable:
        rule = "must hold log-probabilities of the options"
        advice = (
            "Evaluate with logprobs=True and top_logprobs, or name the field of a stated "
            "confidence: confidence_column='metadata.confidence'."
        )
        raise refuse(where, rule, f"got samples {next(iter(questions.unreadable))}", advice)
    return questions.columns(layout, {"source": "Inspect"})


def _document(sample: Row, task: str) -> str:
    return f"{task}/{sample.get('id')}"


def _confidences(samples: Sequence[Row], task: str, where: str, layout: Layout) -> Columns:
    """Stated confidences, and whether a scorer called the answer correct."""
    scorer = _scorer(samples, where, layout.scorer)
    assert layout.confidence_column is not None
    for name in (layout.confidence_column, layout.correct_column):
        if name is not None and all(field(sample, name) is None for sample in samples):
            advice = "Look into a sample of the log; dots lead into objects."
            raise refuse(where, f"has no field {name!r}", None, advice)
    rows = [
        {
            "confidence": field(sample, layout.confidence_column),
            "correct": None if scorer is None else field(sample, f"scores.{scorer}.value"),
            CLUSTERS: _document(sample, task),
            f"{GROUP_PREFIX}task": task,
        }
        for sample in samples
    ]
    if layout.correct_column is not None:
        name = layout.correct_column
        rows = [row | {"correct": field(s, name)} for row, s in zip(rows, samples, strict=True)]
    plain = replace(layout, confidence_column=None, correct_column=None)
    return rows_columns(rows, where, plain)


def _scorer(samples: Sequence[Row], where: str, wanted: str | None) -> str | None:
    names = dict.fromkeys(name for s in samples for name in s.get("scores") or {})
    if wanted is not None:
        if wanted not in names:
            rule, advice = f"has no scorer {wanted!r}", near_name(wanted, names)
            raise refuse(where, rule, None, advice)
        return wanted
    if len(names) > 1:
        rule, got = "has several scorers", f"got {', '.join(names)}"
        raise refuse(where, rule, got, f"Name one, such as scorer={next(iter(names))!r}.")
    return next(iter(names), None)


def _option_scores(sample: Row) -> list[float] | str:
    """Log-probabilities of the options by their letters, or why there are none."""
    options = len(sample.get("choices") or [])
    if sample.get("error"):
        return "that ended in an error"
    letters = ascii_uppercase[:options]
    found: dict[str, float] = {}
    for token in _tokens(sample):
        if str(token.get("token", "")).strip() in letters and token.get("top_logprobs"):
            found = {}  # the last one is the answer
            for other in token["top_logprobs"]:
                letter = str(other["token"]).strip()
                if letter in letters and letter:
                    both = found.get(letter, -math.inf), float(other["logprob"])
                    found[letter] = max(both)
    if not found:
        return "without log-probabilities"
    if set(found) != set(letters) or not all(math.isfinite(v) for v in found.values()):
        return "without a log-probability for every option"
    return [found[letter] for letter in letters]


def _tokens(sample: Row) -> Iterator[Mapping[str, Any]]:
    for choice in (field(sample, "output.choices") or [])[:1]:
        for token in field(choice, "logprobs.content") or []:
            if isinstance(token, Mapping) and str(token.get("token", "")).strip():
                yield token


def _target(sample: Row, where: str) -> int:
    target = sample.get("target")
    letter = target[0] if isinstance(target, list) and len(target) == 1 else target
    if not isinstance(letter, str) or len(letter) != 1 or letter not in ascii_uppercase:
        rule, got = "must have one letter as the target", f"got {str(target)[:60]!r}"
        advice = "Only multiple-choice tasks have option probabilities."
        raise refuse(where, rule, f"{got} in sample {sample.get('id')}", advice)
    return ascii_uppercase.index(letter)
