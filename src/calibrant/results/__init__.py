"""Results of studies: where they are stored, statistics over runs, and tables of them."""

from calibrant.results._statistics import (
    RunComparison,
    RunSummary,
    cohens_d,
    compare_runs,
    pareto_front,
    summarise_runs,
    within_subject_sem,
)
from calibrant.results._store import Store, read_all
from calibrant.results._table import Cell, ResultTable
from calibrant.results._tables import pivot

__all__ = [
    "Cell",
    "ResultTable",
    "RunComparison",
    "RunSummary",
    "Store",
    "cohens_d",
    "compare_runs",
    "pareto_front",
    "pivot",
    "read_all",
    "summarise_runs",
    "within_subject_sem",
]
