"""Every table and figure of the papers: what it needs, and how it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrant._core.checks import check_choice, near_name, refuse
from calibrant._core.files import replacing
from calibrant.papers._comparison import BASELINE, KINDS, TableComparison, compare_table
from calibrant.papers._figures import FIGURES, draw_figure
from calibrant.papers._published import PUBLISHED, published
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, PaperAt, method_name
from calibrant.study import Run, Study

PAPERS = ("loss_report", "wang2021", "singh2021", "mukhoti2020", "karandikar2021")
FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper."""

    paper: str
    name: str
    caption: str
    needs: tuple[Need, ...]

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return self.name in PUBLISHED.get(self.paper, {})

    def studies(self, at: PaperAt) -> list[Study]:
        """The studies that make what it needs at a scale, each with the runs needed only."""
        return merged(study for need in self.needs for study in at.study(need.kind, need.methods))

    def table(self, results: Results) -> TableComparison:
        """The published table beside what is finished."""
        return compare_table(self.paper, self.name, results)

    def write_table(self, made: TableComparison, folder: Path, scale: str) -> list[Path]:
        """Write a table as text, Markdown and CSV."""
        texts = {"txt": made.to_text(), "md": made.to_markdown(), "csv": made.to_csv()}
        paths = self._paths(folder, scale, texts)
        for path, text in zip(paths, texts.values(), strict=True):
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return paths

    def write_figure(self, results: Results, folder: Path, formats: Sequence[str]) -> list[Path]:
        """Draw what is finished, and write the figure in the given formats."""
        paths = self._paths(
            folder, results.at.scale, [check_choice("format", kind, FORMATS) for kind in formats]
        )
        figure = draw_figure(self.paper, self.name, results)
        for path in paths:
            with replacing(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=DOTS_PER_INCH)
        return paths

    def _paths(self, folder: Path, scale: str, endings: Iterable[str]) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        return [folder / f"{self.paper}-{self.name}-{scale}.{ending}" for ending in endings]


def merged(studies: Iterable[Study]) -> list[Study]:
    """Parts of the same study files as one study each."""
    found: dict[str, Study] = {}
    for study in studies:
        runs = [*found[study.name].runs, *study.runs] if study.name in found else study.runs
        found[study.name] = replace(study, runs=tuple({run.key: run for run in runs}.values()))
    return [study for study in found.values() if study.runs]


def _methods(paper: str, table: str) -> tuple[str, ...]:
    """The methods in a published table; those that are no loss rest on cross-entropy."""
    cells = published(paper, table).to_pylist()
    names = (method_name(cell["objective"], cell["secondary"]) for cell in cells)
    return tuple(dict.fromkeys(BASELINE if name == "confidnet" else name for name in names))


def _kinds(paper: str, table: str) -> tuple[str, ...]:
    """The questions that a table asks of the runs; wang2021 repeats its tables with ResNet-110."""
    kind = KINDS.get((paper, table), "main")
    return (kind, "deeper") if paper == "wang2021" else (kind,)


def experiments(paper: str) -> dict[str, Experiment]:
    """The tables and figures of a paper by name."""
    if paper not in PAPERS:
        raise refuse(
            "paper", "must be one of the papers", f"got {paper!r}", near_name(str(paper), PAPERS)
        )
    tables = {
        name: Experiment(
            paper,
            name,
            info.caption,
            tuple(Need(kind, _methods(paper, name)) for kind in _kinds(paper, name)),
        )
        for name, info in PUBLISHED.get(paper, {}).items()
    }
    figures = {
        name: Experiment(paper, name, info.caption, info.needs)
        for name, info in FIGURES[paper].items()
    }
    return tables | figures


def get_experiment(paper: str, name: str) -> Experiment:
    """A table or figure by name."""
    known = experiments(paper)
    if name not in known:
        rule = f"must be a table or figure of {paper}"
        raise refuse("name", rule, f"got {name!r}", near_name(str(name), known))
    return known[name]


def distinct_runs(studies: Iterable[Study]) -> list[Run]:
    """The runs of some studies, each once."""
    return list({run.key: run for study in studies for run in study.runs}.values())
