"""The papers that Calibrant implements: published tables, recipes, figures, and claims as tests.

>>> from calibrant.papers import PUBLISHED, published
>>> list(PUBLISHED)
['wang2021', 'singh2021', 'mukhoti2020', 'karandikar2021']
>>> published("singh2021", "table4").num_rows
8
"""

from calibrant.papers._claims import CLAIMS, Claim, Verdict, claims_json, claims_table, judge
from calibrant.papers._comparison import Comparison, compare_table
from calibrant.papers._cost import Cost, cost
from calibrant.papers._evidence import Evidence
from calibrant.papers._experiments import (
    PAPERS,
    Experiment,
    distinct_runs,
    experiments,
    get_experiment,
    merged,
)
from calibrant.papers._figures import FIGURES, FigureInfo, draw_figure
from calibrant.papers._published import PUBLISHED, TableInfo, citation, published
from calibrant.papers._results import Results, scale_of
from calibrant.papers._scales import SCALES, Need, PaperAt, Place, load_study, paper_at

__all__ = [
    "CLAIMS",
    "FIGURES",
    "PAPERS",
    "PUBLISHED",
    "SCALES",
    "Claim",
    "Comparison",
    "Cost",
    "Evidence",
    "Experiment",
    "FigureInfo",
    "Need",
    "PaperAt",
    "Place",
    "Results",
    "TableInfo",
    "Verdict",
    "citation",
    "claims_json",
    "claims_table",
    "compare_table",
    "cost",
    "distinct_runs",
    "draw_figure",
    "experiments",
    "get_experiment",
    "judge",
    "load_study",
    "merged",
    "paper_at",
    "published",
    "scale_of",
]
