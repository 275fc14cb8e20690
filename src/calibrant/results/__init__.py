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
from calibrant.results._store import COLUMNS, SCHEMA, Store, damaged_files, read_all
from calibrant.results._tables import Cell, ResultTable, natural_order, pivot, straight

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "Cell",
    "ResultTable",
    "RunComparison",
    "RunSummary",
    "Store",
    "cohens_d",
    "compare_runs",
    "damaged_files",
    "natural_order",
    "pareto_front",
    "pivot",
    "read_all",
    "straight",
    "summarise_runs",
    "within_subject_sem",
]
