"""The rules that keep the code in order: one place knows a metric, private names stay private."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from calibrant.metrics import METRICS

SOURCE = Path(__file__).parents[1] / "src" / "calibrant"
FILES = sorted(SOURCE.rglob("*.py"))
# Where a word that is also the name of a metric means something else.
OTHER_MEANINGS = {
    "calibrators/_selection.py": "criteria of the selection",
    "calibrators/_temperature.py": "objectives of the fit",
    "losses/__init__.py": "names of losses",
    "plots/_temperature.py": "labels of curves",
    "plots/_training.py": "columns of the training history",
    "report/_explorer.py": "names of outputs in the scripts of the page",
    "study/_tune.py": "a column heading",
    "train/_stopping.py": "what early stopping watches",
    "train/_telemetry.py": "columns of the training history",
    "cli/_study.py": "defaults and examples of options",
}


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String constants in code: docstrings and strings on their own lines are left out."""
    alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def test_only_the_registry_lists_metrics() -> None:
    found = {}
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if name.split("/")[0] not in ("metrics", "papers"):
            spelt = [s.value for s in strings(ast.parse(path.read_text())) if s.value in METRICS]
            if spelt:
                found[name] = spelt
    assert set(found) == set(OTHER_MEANINGS), found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_reads(tree: ast.Module) -> Iterator[str]:
    """Underscore attributes of objects that this module does not define itself."""
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {
        t.id
        for c in classes
        for n in c.body
        if isinstance(n, ast.AnnAssign)
        for t in [n.target]
        if isinstance(t, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            own.add(node.attr)
    for node in ast.walk(tree):
        private = isinstance(node, ast.Attribute) and _is_private(node.attr)
        if private and node.attr not in own:
            yield ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calibrant"):
            folder = SOURCE.parent / str(node.module).replace(".", "/")
            for alias in node.names:
                module = (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
                if _is_private(alias.name) and not module:
                    yield f"from {node.module} import {alias.name}"


# Of the standard library: there is no public name for these.
ALLOWED = {"os._exit", "hashlib._Hash", "label._replace"}


def test_no_module_reads_private_names_of_another() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): reads
        for path in FILES
        if (reads := set(private_reads(ast.parse(path.read_text()))) - ALLOWED)
    }
    assert not found


def test_no_module_is_too_long() -> None:
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
    assert not long
