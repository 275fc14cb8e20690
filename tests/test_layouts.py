"""Files as people have them: other columns, other formats, other conventions."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Confidences, InputError, Predictions, Scores, load, measure, metrics
from calibrant._core.checks import CalibrationWarning, FileNote
from tests.command import call

Z = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.5], [0.5, 0.25, 3.0], [1.0, 0.0, 0.0]])
Y = [0, 1, 2, 1]
P = Predictions(logits=Z, labels=Y).probs


def text(head: str, rows: object, sign: str = ",") -> bytes:
    lines = [head, *(sign.join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def wide(values: np.ndarray, labels: object = Y) -> list[list[object]]:
    return [[label, *row] for label, row in zip(labels, values.tolist(), strict=True)]


def lines(rows: Iterable[object]) -> bytes:
    return "".join(json.dumps(row) + "\n\n" for row in rows).encode()


PAIRS = list(zip(Y, P, strict=True))
LOGITS = list(zip(Y, Z, strict=True))
NAMES = np.array(["cat", "dog", "eel"])
PLAIN = Predictions(logits=Z, labels=Y)
NAMED = text("label,prob_cat,prob_dog,prob_eel", wide(P, NAMES[Y]))
BINARY = [[1, 0.9], [0, 0.2], [1, 0.4]]
# Name of the file: its bytes, the options of load, and the class names.
GOOD: dict[str, tuple[bytes, dict[str, object], tuple[str, ...] | None]] = {
    "extra.csv": (text("id,label,logit_0,logit_1,logit_2", [["x", *r] for r in wide(Z)]), {}, None),
    "named.csv": (NAMED, {}, ("cat", "dog", "eel")),
    "classes.csv": (
        text("label,prob_0,prob_1,prob_2", wide(P, NAMES[Y])),
        {"classes": "cat,dog,eel"},
        ("cat", "dog", "eel"),
    ),
    "pattern.csv": (
        text("y,p_cat,p_dog,p_eel", wide(P, NAMES[Y])),
        {"label_column": "y", "prob_columns": "p_*"},
        ("cat", "dog", "eel"),
    ),
    "numbered.csv": (
        text("y,s2,s0,s1", [[y, r[2], r[0], r[1]] for y, r in zip(Y, Z, strict=True)]),
        {"label_column": "y", "logit_columns": "s*"},
        None,
    ),
    "german.csv": (
        text(
            "label;prob_0;prob_1;prob_2",
            [[y, *(str(v).replace(".", ",") for v in r)] for y, r in zip(Y, P, strict=True)],
            ";",
        ),
        {"separator": ";", "decimal": ","},
        None,
    ),
    "tabs.tsv": (text("label\tlogit_0\tlogit_1\tlogit_2", wide(Z), "\t"), {}, None),
    "percent.csv": (text("label,prob_0,prob_1,prob_2", wide(100 * P)), {"percent": True}, None),
    "signs.csv": (
        text("label,prob_0,prob_1,prob_2", [[y, *(f"{100 * v} %" for v in r)] for y, r in PAIRS]),
        {"percent": True},
        None,
    ),
    "packed.csv.gz": (gzip.compress(NAMED), {}, ("cat", "dog", "eel")),
    "rows.jsonl": (lines({"label": y, "logits": r.tolist(), "id": 3} for y, r in LOGITS), {}, None),
    "inner.jsonl.gz": (
        gzip.compress(lines({"doc": {"y": y}, "logits": r.tolist()} for y, r in LOGITS)),
        {"label_column": "doc.y"},
        None,
    ),
    "nested.jsonl": (
        lines({"gold": y, "out": {"probs": r.tolist()}} for y, r in PAIRS),
        {"label_column": "gold", "prob_columns": "out.probs"},
        None,
    ),
    "letters.jsonl": (
        lines(
            {"gold": NAMES[y], "top": dict(zip(NAMES, r.tolist(), strict=True))} for y, r in LOGITS
        ),
        {"label_column": "gold", "logit_columns": "top.*"},
        ("cat", "dog", "eel"),
    ),
    "list.json": (
        json.dumps([{"label": y, "probs": r.tolist()} for y, r in PAIRS]).encode(),
        {},
        None,
    ),
}


def test_every_layout_gives_the_same_predictions(tmp_path: Path) -> None:
    for name, (data, options, classes) in GOOD.items():
        (tmp_path / name).write_bytes(data)
        noted = name in ("extra.csv", "rows.jsonl")
        if noted:
            with pytest.warns(FileNote, match=f"{name}: not used: id"):
                p = load(tmp_path / name, **options)
            with pytest.raises(InputError, match="unknown column; got 'id'"):
                load(tmp_path / name, strict=True, **options)
        else:
            p = load(tmp_path / name, **options)
        assert isinstance(p, Predictions), name
        np.testing.assert_allclose(p.probs, P, rtol=1e-12, err_msg=name)
        assert p.labels.tolist() == Y, name
        assert p.classes == classes, name
        with pytest.warns(FileNote) if noted else _silence():
            assert (Predictions.load(tmp_path / name, **options).labels == Y).all()


class _silence:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


def test_one_column_is_the_positive_class(tmp_path: Path) -> None:
    for name, head, options in (
        ("a.csv", "label,prob_1", {}),
        ("b.csv", "y,risk", {"label_column": "y", "prob_columns": "risk"}),
    ):
        for labels in ([1, 0, 1], ["yes", "no", "Yes"], ["true", "false", "true"]):
            rows = [[y, p] for y, (_, p) in zip(labels, BINARY, strict=True)]
            (tmp_path / name).write_bytes(text(head, rows))
            p = load(tmp_path / name, **options)
            np.testing.assert_allclose(p.probs[:, 1], [0.9, 0.2, 0.4])
            assert p.labels.tolist() == [1, 0, 1]
    (tmp_path / "c.csv").write_bytes(text("label,logit_1", [[1, 2.0], [0, -1.0]]))
    np.testing.assert_allclose(load(tmp_path / "c.csv").logits, [[0, 2.0], [0, -1.0]])


def test_clusters_and_groups_of_columns(tmp_path: Path) -> None:
    rows = [[y, *r, f"p{k // 2}", "north"] for k, (y, r) in enumerate(zip(Y, Z, strict=True))]
    (tmp_path / "p.csv").write_bytes(text("label,logit_0,logit_1,logit_2,patient,site", rows))
    options = {"cluster_column": "patient", "group_columns": ["site"]}
    p = load(tmp_path / "p.csv", **options)
    assert p.clusters.tolist() == ["p0", "p0", "p1", "p1"]
    assert p.groups["site"].tolist() == ["north"] * 4
    for ending in (".npz", ".parquet", ".csv"):
        p.save(tmp_path / f"q{ending}")
        assert load(tmp_path / f"q{ending}").clusters.tolist() == p.clusters.tolist()
    done = call(
        "measure",
        tmp_path / "p.csv",
        "--cluster-column",
        "patient",
        "--group-column",
        "site",
        "--no-intervals",
        "--json",
    )
    assert done.returncode == 0, done.stderr


def test_parquet_reads_only_what_it_uses(tmp_path: Path) -> None:
    table = pa.table({"label": Y, "note": ["a"] * 4, "made": pa.array([0] * 4, pa.timestamp("s"))})
    for k in range(3):
        table = table.append_column(f"logit_{k}", pa.array(Z[:, k]))
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.warns(FileNote, match="not used: note, made"):
        np.testing.assert_array_equal(load(tmp_path / "p.parquet").logits, Z)
    np.savez(tmp_path / "p.npz", logits=Z, labels=Y, image_id=np.arange(4))
    with pytest.warns(FileNote, match="not used: image_id"):
        np.testing.assert_array_equal(load(tmp_path / "p.npz").logits, Z)
    with pytest.raises(InputError, match="has arrays, not columns"):
        load(tmp_path / "p.npz", label_column="y")


def test_rounded_probabilities_are_renormalised_on_request(tmp_path: Path) -> None:
    rounded = np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.25], [0.67, 0.17, 0.17]])
    (tmp_path / "p.csv").write_bytes(text("label,prob_0,prob_1,prob_2", wide(rounded, [0, 1, 2])))
    with pytest.raises(InputError, match=r"got 0.99 in row 0.*renormalise=True"):
        load(tmp_path / "p.csv")
    p = load(tmp_path / "p.csv", renormalise=True)
    np.testing.assert_allclose(p.probs, rounded / rounded.sum(1, keepdims=True))
    (tmp_path / "q.csv").write_bytes(text("label,prob_0,prob_1", [[0, 0.3, 0.3]]))
    with pytest.raises(InputError, match="Rounding does not explain this"):
        load(tmp_path / "q.csv", renormalise=True)


@pytest.mark.parametrize("option", ["renormalise", "percent"])
@pytest.mark.parametrize(
    ("probs", "rule"),
    [
        (np.array([[b"a", b"b"]] * 4), "must hold real numbers"),
        (np.ones((4, 2), dtype=complex), "must hold real numbers"),
        (np.full(4, 100.0), "must have shape"),
        (np.full((4, 2), [np.inf, -np.inf]), "row 0|finite"),
        (np.zeros((4, 0)), "K >= 2|sum to 1"),
    ],
)
def test_options_of_probabilities_refuse_bad_arrays(
    tmp_path: Path, probs: np.ndarray, rule: str, option: str
) -> None:
    np.savez(tmp_path / "p.npz", probs=probs, labels=[0, 1, 1, 0])
    with pytest.raises(InputError, match=rule):
        load(tmp_path / "p.npz", **{option: True})


def test_room_for_renormalised_probabilities_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of half precision takes eight times its size."""
    np.savez(
        tmp_path / "p.npz",
        probs=np.full((100_000, 10), 0.1, dtype=np.float16),
        labels=np.zeros(100_000, dtype=np.int8),
    )
    monkeypatch.setattr("calibrant._core.memory.available_memory", lambda: 10 << 20)
    load(tmp_path / "p.npz")
    with pytest.raises(InputError, match=r"needs 15\.3 MiB of memory"):
        load(tmp_path / "p.npz", renormalise=True)


def test_stated_confidences(tmp_path: Path) -> None:
    for correct in (["yes", "no", "yes"], ["TRUE", "false", "True"], [1, 0, 1]):
        rows = [[c, y] for c, y in zip(["85 %", "20%", "100 %"], correct, strict=True)]
        (tmp_path / "c.csv").write_bytes(text("confidence,correct", rows))
        c = load(tmp_path / "c.csv", percent=True)
        assert isinstance(c, Confidences)
        np.testing.assert_allclose(c.confidence, [0.85, 0.2, 1.0])
        assert c.correct.tolist() == [True, False, True]
    with pytest.raises(InputError, match="If these are per cent, add percent=True"):
        load(tmp_path / "c.csv")
    (tmp_path / "d.csv").write_bytes(text("confidence,correct", [[0.5, 1], [0.9, 0]]))
    with pytest.raises(InputError, match="leave percent=True out"):
        load(tmp_path / "d.csv", percent=True)


def test_listed_columns_name_their_classes(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("y,prob_well,prob_ill\nill,0.3,0.7\nwell,0.6,0.4\n")
    p = load(tmp_path / "p.csv", label_column="y", prob_columns="prob_ill,prob_well")
    assert p.classes == ("ill", "well")
    assert p.correct.all()


def test_refusals_are_counted_and_shown(tmp_path: Path) -> None:
    rows = [["90", "yes"], ["I cannot say", "no"], ["", "yes"], ["40", "unclear"], ["70", "no"]]
    lines = [{"said": c, "right": y} for c, y in rows]
    (tmp_path / "c.csv").write_bytes(text("said,right", rows))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    names = {"confidence_column": "said", "correct_column": "right", "percent": True}
    for file in ("c.csv", "c.jsonl"):
        with pytest.raises(InputError, match="must hold"):
            load(tmp_path / file, **names)
        c = load(tmp_path / file, skip_unparsable=True, **names)
        assert c.confidence.tolist() == [0.9, 0.7]
        said = str(measure(c, intervals=False))
        assert "3 of 5 answers could not be read and are left out" in said
        assert "I cannot say" in said
        done = call(
            "measure",
            tmp_path / file,
            "--confidence-column",
            "said",
            "--correct-column",
            "right",
            "--percent",
            "--skip-unparsable",
            "--no-intervals",
        )
        assert "3 of 5 answers" in done.stdout, done.stderr
    (tmp_path / "none.csv").write_bytes(text("said,right", rows[1:2] * 4))
    with pytest.raises(
        InputError, match=r"none\.csv must hold .*got 4 rows such as 'I cannot say'"
    ):
        load(tmp_path / "none.csv", skip_unparsable=True, **names)


def test_what_is_wrong_is_said_with_the_option_that_helps(tmp_path: Path) -> None:
    bad = {
        "semicolons.csv": (b"label;prob_0;prob_1\n0;0.5;0.5\n", "got semicolons.*separator=';'"),
        "tabs.csv": (b"label\tprob_0\tprob_1\n0\t0.5\t0.5\n", "separator="),
        "commas.csv": (b'label,prob_0,prob_1\n0,"0,5","0,5"\n', "decimal comma: add decimal=','"),
        "percent.csv": (b"label,prob_0,prob_1\n0,25,75\n", "got 100 in row 0.*percent=True"),
        "one.csv": (b"label,prob_1\n0,25\n1,75\n", "got 25 in row 0.*percent=True"),
        "names.csv": (b"label,prob_0,prob_1\nill,0.5,0.5\n", "such as 'ill'.*classes="),
        "refused.csv": (b"confidence,correct\n0.5,1\nno idea,0\n", "'no idea'.*skip_unpars"),
        "missing.jsonl": (b'{"confidence": null, "correct": 1}\n', "1 rows without.*skip_unp"),
        "others.jsonl": (b'{"id": 1, "gold": 0}\n', "Not used: 'id', 'gold'"),
        "words.csv": (b"label,prob_0,prob_1\ncat,0.5,0.5\n", "names without classes.*classes="),
        "lines.jsonl": (b'{"label": 0}\nnot json\n', "in line 2"),
        "array.jsonl": (b"[1, 2]\n", "one object per line; got list in line 1"),
        "deep.jsonl": (b"[" * 100_000, "cannot be read as JSON lines"),
        "empty.jsonl": (b"\n\n", "at least one sample"),
        "bomb.csv.gz": (b"\x1f\x8bnonsense", "cannot be read"),
        "packed.npz.gz": (b"", "must end in"),
        "c.json": (b'{"schema": "calibrant.calibrator"}', "load_calibrator"),
        "number.json": (b"3", "must be an Inspect log or a list of objects"),
        "mixed.jsonl": (b'{"label": 0, "logits": [1, "x"]}\n', "cannot be read|must hold"),
        "garbage.eval": (b"PK\x03\x04nonsense", "cannot be read"),
        "scores.csv": (b"label,prob_cat\n0,0.5\n", "must hold logits"),
    }
    for name, (data, message) in bad.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message):
            load(tmp_path / name)
    for name, option in {
        "semicolons": "Add --separator ';'; where decimals have a comma, also --decimal ','.",
        "commas": "add --decimal ',' (and --separator ';').",
        "percent": "If these are per cent, divide by 100, or load the file with --percent.",
        "names": "Name all in the order of the columns: --classes cat,dog.",
        "refused": "Leave such rows out and count them with --skip-unparsable.",
    }.items():
        assert option in call("measure", tmp_path / f"{name}.csv").stderr
        done = call("measure", tmp_path / name)
        assert done.returncode == 2, name
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    with pytest.raises(InputError, match="load has no option 'label_colum'"):
        load(tmp_path / "words.csv", label_colum="x")
    with pytest.raises(InputError, match="has no column 'y'"):
        load(tmp_path / "words.csv", label_column="y")


def test_bombs_are_refused_before_they_fill_memory(tmp_path: Path, monkeypatch) -> None:
    from calibrant._core import memory

    (tmp_path / "b.csv.gz").write_bytes(
        gzip.compress(b"label,logit_0,logit_1\n" + b"0,1,2\n" * 10**6)
    )
    (tmp_path / "b.jsonl").write_bytes(b'{"label": 0, "logits": [1, 2]}\n' * 50_000)
    monkeypatch.setattr(memory, "available_memory", lambda: 2_000_000)
    for name in ("b.csv.gz", "b.jsonl"):
        with pytest.raises(InputError, match="of memory, but only"):
            load(tmp_path / name)


@pytest.mark.parametrize("name", ["b.csv.gz", "b.jsonl.gz"])
def test_packed_text_is_never_held_as_a_whole(tmp_path: Path, monkeypatch, name: str) -> None:
    from calibrant.io import _text

    head, row = b"", b'{"label": 0, "logits": [1, 2]}' + b" " * 20_000 + b"\n"
    if name == "b.csv.gz":
        head, row = b"label,logit_0,logit_1\n", b"0,1." + b"0" * 20_000 + b",2\n"
    # 50 MB: Arrow reads several pieces ahead, up to 13 MB on a busy machine.
    (tmp_path / name).write_bytes(gzip.compress(head + row * 2500, 1))
    monkeypatch.setattr(_text, "TEXT_PIECE", 1 << 20)
    load(tmp_path / name)  # imports take memory, too
    tracemalloc.start()
    try:
        assert load(tmp_path / name).num_samples == 2500
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(row) * 2500 / 2
    monkeypatch.setattr(_text, "PLENTY", 1 << 20)
    monkeypatch.setattr(_text, "EXPANSION", 10)
    with pytest.raises(InputError, match=r"more than 10 times its size; got over .* gunzip"):
        load(tmp_path / name)


def test_urls_of_pyarrows_filesystems(tmp_path: Path) -> None:
    PLAIN.save(tmp_path / "p.npz")
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(NAMED))
    for name in ("p.npz", "p.csv.gz"):
        assert (load((tmp_path / name).as_uri()).labels == Y).all()
    url = (tmp_path / "p.npz").as_uri()
    for command in (
        ("measure", url, "--no-intervals"),
        (
            "calibrate",
            "--fit",
            url,
            "--method",
            "temperature",
            "--apply",
            url,
            "--out",
            tmp_path / "out.npz",
            "--replicates",
            20,
        ),
        ("decompose", url),
    ):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    assert (load(tmp_path / "out.npz").labels == Y).all()
    for url in ("https://example.org/p.npz", "nowhere://p.npz", "file:///no/such.npz"):
        done = call("measure", url)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1


def test_padded_questions_of_json_lines(tmp_path: Path) -> None:
    rows = [{"label": 1, "probs": [0.25, 0.75]}, {"label": 2, "probs": [0.2, 0.3, 0.5]}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    p = load(tmp_path / "q.jsonl")
    np.testing.assert_allclose(p.probs, [[0.25, 0.75, 0.0], [0.2, 0.3, 0.5]])
    assert "2 to 3 options" in str(measure(p, intervals=False))


def test_logits_that_look_like_probabilities(tmp_path: Path) -> None:
    doubtful = Predictions(logits=P, labels=Y)
    with pytest.warns(CalibrationWarning, match="look like probabilities"):
        panel = measure(doubtful, intervals=False)
    assert "look like probabilities" in str(panel)
    assert "look like probabilities" in panel.to_dict()["notes"][0]
    doubtful.save(tmp_path / "p.npz")
    done = call("measure", tmp_path / "p.npz", "--no-intervals")
    assert "calibrant: warning: These logits look like probabilities" in done.stderr
    done = call("measure", tmp_path / "p.npz", "--no-intervals", "--i-mean-it")
    assert done.stderr == ""
    assert "look like" not in done.stdout
    measure(PLAIN, intervals=False)  # others are not suspected
    with pytest.raises(InputError, match="pass them as logits"):
        Predictions(probs=Z, labels=Y)


def test_load_reads_what_calibrate_writes(tmp_path: Path) -> None:
    PLAIN.save(tmp_path / "fit.npz")
    Scores(logits=Z).save(tmp_path / "new.npz")
    done = call(
        "calibrate",
        "--fit",
        tmp_path / "fit.npz",
        "--method",
        "histogram",
        "--apply",
        tmp_path / "new.npz",
        "--out",
        tmp_path / "out.csv",
    )
    assert done.returncode == 0, done.stderr
    found = load(tmp_path / "out.csv")
    assert type(found) is Scores
    assert found.num_samples == 4
    done = call("measure", tmp_path / "out.csv")
    assert done.returncode == 2
    assert "must hold labels; got probs alone" in done.stderr


def test_gates_use_the_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (300, 4))
    labels = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    Predictions(logits=z, labels=labels).save(tmp_path / "a.npz")
    Predictions(logits=z / 2, labels=labels).save(tmp_path / "b.npz")
    gate = ("--replicates", 100, "--fail-if")
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    panel = measure(load(a), metrics=["ece"], replicates=100).interval("ece")
    for bound, code in ((panel.low - 1e-3, 1), (panel.low + 1e-3, 0)):
        done = call("measure", a, "--metrics", "ece", *gate, f"ece.low > {bound}")
        assert done.returncode == code, done.stderr
    assert call("measure", a, *gate, f"ece.high < {panel.high + 1e-3}").returncode == 1
    for condition, code in (
        ("difference.nll.low > 0", 1),
        ("difference.nll.high < 0", 0),
        ("difference.nll > 0", 1),
    ):
        done = call("compare", a, b, "--metrics", "nll", *gate, condition)
        assert done.returncode == code, done.stderr
    for command in (
        ("measure", a, "--no-intervals", "--fail-if", "ece.low > 0"),
        ("measure", a, "--fail-if", "difference.nll > 0"),
        ("compare", a, b, "--fail-if", "nll > 0"),
        ("measure", a, "--fail-if", "ece.mid > 0"),
        ("measure", a, "--fail-if", "slope > 0"),
    ):
        done = call(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--fail-if" in done.stderr
    assert ".high to a number" in call("measure", a, "--fail-if", "ece.mid > 0").stderr


def test_a_gate_on_the_value_fails_calibrated_models() -> None:
    """What docs/files.md says: half of them at N = 500, where one on the bound passes them."""
    failed, by_bound = 0, 0
    for seed in range(100):
        rng = np.random.default_rng((3, seed))
        z = rng.normal(0, 2, (500, 5))
        p = Predictions(logits=z, labels=(z + rng.gumbel(size=z.shape)).argmax(1))
        failed += metrics.ece(p) > 0.05
        if seed < 10:
            panel = measure(p, metrics=["ece"], replicates=200, seed=seed)
            by_bound += panel.interval("ece").low > 0.02
    assert 40 <= failed <= 60
    assert by_bound == 0


def test_json_says_where_it_comes_from(tmp_path: Path) -> None:
    PLAIN.save(tmp_path / "p.npz")
    done = call("measure", tmp_path / "p.npz", "--json", "--seed", 7, "--replicates", 20)
    data = json.loads(done.stdout)
    assert data["file"] == str(tmp_path / "p.npz")
    assert data["file_bytes"] == (tmp_path / "p.npz").stat().st_size
    assert (data["num_samples"], data["level"], data["seed"]) == (4, 0.95, 7)
    assert data["version"]
    assert metrics.METRICS.keys() >= data["metrics"].keys()
