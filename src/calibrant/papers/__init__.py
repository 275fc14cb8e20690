"""The papers that Calibrant implements: published tables, recipes, figures, and claims as tests.

>>> from calibrant.papers import PUBLISHED, published
>>> list(PUBLISHED)
['wang2021', 'singh2021', 'mukhoti2020', 'karandikar2021']
>>> published("singh2021", "table4").num_rows
8
"""

from calibrant.papers._claims import CLAIMS, Claim, ClaimVerdict, claims_json, claims_table, judge
from calibrant.papers._collected import collect, results_of, scale_of
from calibrant.papers._comparison import TableComparison, compare_table
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
from calibrant.papers._networks import evidence_at, network_evidence
from calibrant.papers._published import PUBLISHED, TableInfo, citation, published
from calibrant.papers._results import Results
from calibrant.papers._scales import (
    NETWORKS,
    SCALES,
    TUNED,
    Need,
    PaperAt,
    Place,
    load_study,
    paper_at,
    scale_note,
)

__all__ = [
    "CLAIMS",
    "FIGURES",
    "NETWORKS",
    "PAPERS",
    "PUBLISHED",
    "SCALES",
    "TUNED",
    "Claim",
    "ClaimVerdict",
    "Cost",
    "Evidence",
    "Experiment",
    "FigureInfo",
    "Need",
    "PaperAt",
    "Place",
    "Results",
    "TableComparison",
    "TableInfo",
    "citation",
    "claims_json",
    "claims_table",
    "collect",
    "compare_table",
    "cost",
    "distinct_runs",
    "draw_figure",
    "evidence_at",
    "experiments",
    "get_experiment",
    "judge",
    "load_study",
    "merged",
    "network_evidence",
    "paper_at",
    "published",
    "results_of",
    "scale_note",
    "scale_of",
]
