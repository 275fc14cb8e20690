"""Structure of the code: metrics are listed in one place, private names stay private."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from calibrant.metrics import METRICS

SOURCE = Path(__file__).parents[1] / "src" / "calibrant"
FILES = sorted(SOURCE.rglob("*.py"))
# Words that are also names of metrics but mean something else, and where.
OTHER_MEANINGS = {
    "calibrators/_decision.py": {"nll"},  # criteria of the selection
    "calibrators/_selection.py": {"nll", "brier"},  # criteria of the selection
    "calibrators/_trials.py": {"nll", "brier"},  # criteria of the selection
    "calibrators/_temperature.py": {"nll", "ece"},  # objectives of the fit
    "losses/__init__.py": {"brier", "mmce"},  # names of losses
    "plots/_temperature.py": {"nll", "ece", "mean_entropy"},  # labels of curves
    "plots/_training.py": {"nll", "ece"},  # columns of the training history
    "report/_explorer.py": {"accuracy", "ece", "nll"},  # names of outputs in the page's scripts
    "study/_tune.py": {"accuracy"},  # a column heading
    "train/_stopping.py": {"nll", "ece", "accuracy"},  # what early stopping watches
    "train/_telemetry.py": {"nll", "ece"},  # columns of the training history
    "cli/_study.py": {"ece", "nll"},  # defaults of options
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String constants in code: docstrings and strings on their own lines are left out."""
    alone = {id(n.value) for n in nodes(tree) if isinstance(n, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def metric_names(tree: ast.Module) -> set[str]:
    """Names of metrics in code: strings, lists within a string, and keywords of ``dict``."""
    found = set()
    for text in (s.value for s in strings(tree)):
        words = re.findall(r"\w+", text)
        listed = re.fullmatch(r"\w+([\s,]+\w+)*", text) and set(words) <= set(METRICS)
        found |= set(words) if listed else set()
    for node in nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            found |= {keyword.arg for keyword in node.keywords if keyword.arg in METRICS}
    return found


def test_only_the_registry_lists_metrics() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): names
        for path in FILES
        if (names := metric_names(parsed(path)))
    }
    elsewhere = {n: w for n, w in found.items() if n.split("/")[0] not in ("metrics", "papers")}
    assert elsewhere == OTHER_MEANINGS


def test_lists_of_metrics_are_found() -> None:
    listed = ast.parse('SHOWN = ["ece", "nll"]\nMORE = "brier, aurc".split()\nx = dict(mce=1)')
    assert metric_names(listed) == {"ece", "nll", "brier", "aurc", "mce"}
    assert not metric_names(ast.parse('"""ece"""\nx = p.ece\ny = "The ece of a model."'))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_names(tree: ast.Module) -> set[str]:
    """Functions, classes, fields and attributes that a module defines itself."""
    own = set()
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        if isinstance(node, ast.ClassDef):
            fields = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
            own |= {target.id for target in fields if isinstance(target, ast.Name)}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            own.add(node.attr)
    return own


def private_reads(tree: ast.Module) -> Iterator[str]:
    """Underscore attributes of objects that this module does not define itself."""
    own = defined_names(tree)
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if _is_private(name) and name not in own:
                yield ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calibrant"):
            yield from private_imports(node)


def private_imports(node: ast.ImportFrom) -> Iterator[str]:
    """Underscore names that are imported and are no modules."""
    folder = SOURCE.parent / str(node.module).replace(".", "/")
    for alias in node.names:
        module = (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
        if _is_private(alias.name) and not module:
            yield f"from {node.module} import {alias.name}"


# In the standard library; these have no public name.
ALLOWED = {"os._exit", "hashlib._Hash", "label._replace"}


def test_no_module_reads_private_names_of_another() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): reads
        for path in FILES
        if (reads := set(private_reads(parsed(path))) - ALLOWED)
    }
    assert not found


def test_private_names_of_another_module_are_found() -> None:
    source = """
from calibrant.inference import _grid
from calibrant.inference._grid import _with_floor, grid_bounds
class Mine:
    def show(self, p):
        return self._own, p._summary, getattr(p, "_top"), _grid._with_floor(), type(p)._own
"""
    assert set(private_reads(ast.parse(source))) == {
        "p._summary",
        "getattr(p, '_top')",
        "_grid._with_floor",
        "from calibrant.inference._grid import _with_floor",
    }


# Names defined in several modules on purpose, with the reason.
SHARED_NAMES = {
    "CLAIMS": "one tuple per paper, gathered under the same name by papers/_claims.py",
}


def definitions(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Public names bound at the top level of a module, and whether each is a class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((t.id, False) for t in targets if isinstance(t, ast.Name))


def test_a_name_has_one_meaning() -> None:
    """Classes, and the constants that other modules import, are defined once in the package.

    A constant that no other module imports belongs to its module alone and may share
    its name with one elsewhere.
    """
    where: dict[str, set[str]] = defaultdict(set)
    classes, imported = set(), set()
    for path in FILES:
        tree, module = parsed(path), path.relative_to(SOURCE).as_posix()
        for name, is_class in definitions(tree):
            if not name.startswith("_"):
                where[name].add(module)
                classes |= {name} if is_class else set()
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calibrant"):
                imported |= {alias.name for alias in node.names if alias.name.isupper()}
    twice = {n: sorted(m) for n, m in where.items() if len(m) > 1 and n in classes | imported}
    assert {"Predictions", "METRICS"} <= set(where)
    assert set(twice) == set(SHARED_NAMES), twice


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of the body without docstring, blank lines and comments; nested functions count."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start = first.end_lineno if documented and first.end_lineno else first.lineno - 1
    body = (line.strip() for line in lines[start : function.end_lineno])
    return sum(bool(line) and not line.startswith("#") for line in body)


def test_sizes() -> None:
    """At most 400 lines per module (median under 200) and 50 of code per function (under 12)."""
    modules, functions = {}, {}
    for path in FILES:
        lines, name = path.read_text().splitlines(), path.relative_to(SOURCE).as_posix()
        modules[name] = len(lines)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[f"{name}:{node.name}:{node.lineno}"] = code_lines(node, lines)
    assert not {name: n for name, n in modules.items() if n > 400}
    assert not {name: n for name, n in functions.items() if n > 50}
    assert median(modules.values()) < 200
    assert median(functions.values()) < 12


def test_every_folder_is_part_of_the_build() -> None:
    """Folders of data too: setuptools warns at length of those that are not packages."""
    setuptools = pytest.importorskip("setuptools")
    text = (SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    find = tomllib.loads(text)["tool"]["setuptools"]["packages"]["find"]
    finder = setuptools.find_namespace_packages
    if not find.get("namespaces", True):
        finder = setuptools.find_packages
    packages = set(finder(where=str(SOURCE.parent)))
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    folders = {".".join(p.parent.relative_to(SOURCE.parent).parts) for p in files}
    assert "calibrant.papers.published" in folders
    assert folders <= packages, folders - packages


def test_constraints_name_every_package() -> None:
    """`make` installs what they name, and resolves nothing; `pip check` looks at the rest."""
    root = SOURCE.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    wanted = {canonicalize_name(Requirement(text).name) for text in listed} - {"calibrant"}
    lines = (root / "constraints.txt").read_text().splitlines()
    named = {canonicalize_name(line.partition("==")[0]) for line in lines if line[0] != "#"}
    assert wanted <= named, wanted - named
