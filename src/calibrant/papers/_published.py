"""The published tables of the papers, one row per printed cell.

Each table is ``published/PAPER_TABLE.csv`` with the columns of ``TABLE_SCHEMA``. Numbers are in the
units printed (per cent, or times 100), with the digits printed; what a table does not print is
empty.

How the columns are used
    ``objective`` is the primary loss and ``secondary`` the loss added to it: the L1 norm of
    wang2021 is cross_entropy + logit_norm, ERL is cross_entropy + negative_entropy, MMCE of
    mukhoti2020 is cross_entropy + mmce. Two methods stand in ``objective`` though they are no
    losses: mixup, and confidnet (a confidence learned after training); both rest on cross-entropy.
    ``coefficient`` is the one in the table's heading: of the secondary loss if there is one, else
    of the objective. Settings that a paper gives only in its text are in the caption instead.
    ``metric`` is the paper's name for what it measured, and "ece" has more than one definition: L1
    with equal-width bins in wang2021, singh2021 and mukhoti2020, L2 with equal-mass bins in
    karandikar2021. "error" is 100 - accuracy. ``bold`` is empty where the text we read does not
    carry bold type (mukhoti2020), else true or false.

How cells are counted
    Every number with a place of its own is a cell. Spreads and bracketed temperatures belong to
    their cell. wang2021 prints its temperatures on lines of their own, so they are cells (metric
    "temperature") and stand beside the ECE they led to as well.
"""

# Doubtful readings. The tables were read from texts converted from PDF, not from the PDFs.
#
# wang2021, marks in Table 2. The caption explains four signs: up and down triangles, filled where a
#   two-sample t-test at 0.05 finds a difference from cross-entropy, hollow where it does not. The
#   text has lost the fill: it names two pairs made of the same two filled signs, and every mark in
#   the table is a filled one. `mark` records what the text shows, so only its direction can be
#   trusted, and no △ or ▽ occurs in the data although the print must have them: by the printed
#   means and deviations with 5 runs, 11 of the 24 marked differences have p > 0.05 (Student or
#   Welch, sample or population deviation): SVHN TS focal; SVHN HB label smoothing, L1; CIFAR-10 HB
#   label smoothing, L1; CIFAR-100 TS label smoothing; CIFAR-100 HB L1; 20 Newsgroups TS L1 (the one
#   down mark); 20 Newsgroups HB label smoothing, L1, focal. SVHN HB focal is at the edge
#   (p 0.04 to 0.07). The fill was not filled in from this calculation.
# wang2021, coefficients. The heading gives four per method, by slashes; read in the order of the
#   rows SVHN, CIFAR-10, CIFAR-100, 20 Newsgroups, which fits the limits that the text puts on L1.
# wang2021, Table 2. "with TS" and "Temperature" share a text line, the temperature after the ECE.
#   Temperatures have no spread; whether they are means over the 5 runs is not said.
# wang2021, bold. The text keeps underlines and (elsewhere) bold, and shows no bold cell: false.
#
# singh2021, Table 2. The heading lacks the cell over the data sets, so it stands one place to the
#   left of its columns; read as Brier, ECE, AUROC for each network in turn.
# singh2021, Tables 1 and 3. ImageNet cells have no spread: taken as one run.
# singh2021, Table 3. AUROC on ImageNet-v2 is 85.30 for baseline, TS and ERL alike; kept as it is.
# singh2021, Table 4. What follows ± is not named there; taken as the standard deviation over 3
#   runs, which the paper's section 4 announces. Its baselines are other runs than those of Table 2
#   (a tenth of the training data was held out), so the same setting has two values. 13.95 ± 2.7,
#   92.5 ± 0.01 and the like are as printed.
#
# mukhoti2020, names. Headings and data sets are damaged ("CIEAD 100", "Focal L cos", "Cross-
#   Entrony"), and in C.1 and C.3 the data set stands on the second line of its four; rows were
#   assigned by the order of networks, which is the same in all four tables.
# mukhoti2020, C.2, CIFAR-100, WRN-26-10, focal. 0.21 before and 0.18 after T = 1.0, though T = 1
#   changes nothing and every other cell with T = 1 is equal before and after. Kept as it is: one of
#   the two is a misprint or a misreading, or T is rounded.
# mukhoti2020, C.1, CIFAR-100, ResNet-50. All values but focal's equal the ECE of Table 1; kept.
# mukhoti2020, C.3. LS-0.05 has 23.43 for ResNet-50 and ResNet-110 on CIFAR-100, and cross-entropy
#   and Brier have 12.85 on SST; kept as they are.
# mukhoti2020, bold. The text carries none although the print may have it: empty.
#
# karandikar2021, Table 1b. NLL + MMCE has its ECE as 1.55(0.053); Table 2 has 1.55 ± 0.053, so the
#   bracket is the standard error.
# karandikar2021, Table 2. Labels and numbers are shifted by one or two columns in many rows (a
#   spanning data set or primary loss takes a column or does not). Each row has exactly four numbers
#   and its secondary loss just before them; a data set or primary loss holds until the next. This
#   gives 7 groups of the same six secondary losses, and the 14 rows that Table 1 repeats agree.
# karandikar2021, Table 2. The rows say AvUC-SG, the text AvUC-GS; taken as the same (avuc_gs).
# karandikar2021, Table 2. The text counts 35 of 42 settings where TS-SB-ECE beats TS. The table as
#   read gives 34, with no ties. The miscount, or a misread digit, could not be located.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import csv

from calibrant._core.checks import near_name, refuse

Info = TypeVar("Info")
TABLE_COLUMNS = (
    "data",
    "model",
    "objective",
    "secondary",
    "coefficient",
    "calibrator",
    "metric",
    "value",
    "spread",
    "spread_kind",
    "temperature",
    "mark",
    "bold",
)
_TYPES: dict[str, pa.DataType] = {
    "coefficient": pa.float64(),
    "value": pa.float64(),
    "spread": pa.float64(),
    "temperature": pa.float64(),
    "bold": pa.bool_(),
}
TABLE_SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in TABLE_COLUMNS])

_CITATIONS = {
    "loss_report": (
        "How a model calibrates when trained with different losses. Project report; the text names "
        "neither authors nor venue."
    ),
    "wang2021": (
        "D.-B. Wang, L. Feng, M.-L. Zhang. Rethinking Calibration of Deep Neural Networks: Do Not "
        "Be Afraid of Overconfidence. Advances in Neural Information Processing Systems 34, 2021."
    ),
    "singh2021": (
        "A. Singh, A. Bay, B. Sengupta, A. Mirabile. On the Dark Side of Calibration for Modern "
        "Neural Networks. arXiv:2106.09385, 2021 (withdrawn by its version 3, 2022)."
    ),
    "mukhoti2020": (
        "J. Mukhoti, V. Kulharia, A. Sanyal, S. Golodetz, P. H. S. Torr, P. K. Dokania. On using "
        "Focal Loss for Neural Network Calibration. ICML Workshop on Uncertainty and Robustness in "
        "Deep Learning, 2020; the longer paper is arXiv:2002.09437."
    ),
    "karandikar2021": (
        "A. Karandikar, N. Cain, D. Tran, B. Lakshminarayanan, J. Shlens, M. C. Mozer, B. Roelofs. "
        "Soft Calibration Objectives for Neural Networks. Advances in Neural Information "
        "Processing Systems 34, 2021, arXiv:2108.00106."
    ),
}


@dataclass(frozen=True)
class TableInfo:
    """A published table: caption, size, spread and citation.

    Parameters
    ----------
    paper, table
        The names that :func:`published` takes.
    caption
        What the table shows and in which units, with settings that the paper gives elsewhere.
    cells
        How many printed cells, which is how many rows :func:`published` gives.
    spread
        What the spread of a cell is; "none" if none is printed.
    citation
        The paper.
    """

    paper: str
    table: str
    caption: str
    cells: int
    spread: str
    citation: str


_TABLES = (
    (
        "wang2021",
        "table1",
        32,
        "standard deviation over 5 runs",
        "ECE (15 bins) and accuracy in per cent without post-hoc calibration, for cross-entropy "
        "and three regularised losses at the coefficient with the lowest test ECE.",
    ),
    (
        "wang2021",
        "table2",
        48,
        "standard deviation over 5 runs",
        "ECE (15 bins) in per cent of the models of table 1 after temperature scaling and after "
        "histogram binning, with the temperatures found. Marks tell whether a loss is above or "
        "below cross-entropy; whether the difference is significant was lost in the scanned text.",
    ),
    (
        "singh2021",
        "table1",
        18,
        "none",
        "Brier score, ECE and AUROC of correctness, times 100, of ResNet-50 on ImageNet. "
        "Temperature 1.1, label smoothing 0.1, focal 3, entropy 0.1, mixup 0.2. "
        "Bold is worse than the baseline.",
    ),
    (
        "singh2021",
        "table2",
        108,
        "standard deviation over 3 runs",
        "Brier score, ECE and AUROC of correctness, times 100, of three networks on CIFAR-10 and "
        "CIFAR-100. Temperature 1.5, label smoothing 0.05, focal 3, entropy 0.1, mixup 0.2. "
        "Bold is clearly worse than the baseline.",
    ),
    (
        "singh2021",
        "table3",
        54,
        "standard deviation over 3 runs; none for ImageNet-v2",
        "Brier score, ECE and AUROC of correctness, times 100, under natural shift: VGG-16 trained "
        "on CIFAR-10 and ResNet-50 trained on ImageNet. Bold is worse than the baseline.",
    ),
    (
        "singh2021",
        "table4",
        8,
        "standard deviation over 3 runs",
        "ECE and AUROC of correctness, times 100, of VGG-16 with batch normalisation, plain and "
        "with the confidence of ConfidNet. Bold is the better of the two.",
    ),
    (
        "mukhoti2020",
        "table1",
        100,
        "none",
        "ECE (15 bins) in per cent before and after temperature scaling, with the temperature of "
        "lowest validation ECE. Weight of MMCE 2.",
    ),
    (
        "mukhoti2020",
        "tableC1",
        100,
        "none",
        "Adaptive ECE in per cent of the models of table 1, at the same temperatures.",
    ),
    (
        "mukhoti2020",
        "tableC2",
        100,
        "none",
        "Classwise ECE in per cent of the models of table 1, at the same temperatures.",
    ),
    (
        "mukhoti2020",
        "tableC3",
        50,
        "none",
        "Test error in per cent of the models of table 1.",
    ),
    (
        "karandikar2021",
        "table1",
        42,
        "standard error of the mean over 10 runs",
        "Accuracy and ECE (L2 norm, 15 bins of equal mass) in per cent, before and after "
        "temperature scaling, of the main objectives. Bold is the best ECE of a data set, and the "
        "best ECE after scaling where that is lower still.",
    ),
    (
        "karandikar2021",
        "table2",
        168,
        "standard error of the mean over 10 runs",
        "Accuracy and ECE (L2 norm, 15 bins of equal mass) in per cent for all 42 pairs of primary "
        "and secondary loss: as trained, after temperature scaling by likelihood, and after "
        "temperature scaling by soft-binned ECE. Bold is a data set's best in each ECE column.",
    ),
)

#: Every published table: ``PUBLISHED[paper][table]``.
PUBLISHED: dict[str, dict[str, TableInfo]] = {}
for _paper, _table, _cells, _spread, _caption in _TABLES:
    PUBLISHED.setdefault(_paper, {})[_table] = TableInfo(
        _paper, _table, _caption, _cells, _spread, _CITATIONS[_paper]
    )


def citation(paper: str) -> str:
    """How to cite one of the papers.

    Parameters
    ----------
    paper
        ``"loss_report"`` or a key of ``PUBLISHED``.

    Examples
    --------
    >>> citation("karandikar2021").endswith("34, 2021, arXiv:2108.00106.")
    True
    """
    if paper not in _CITATIONS:
        advice = near_name(str(paper), _CITATIONS)
        raise refuse("paper", "must be one of the papers implemented", f"got {paper!r}", advice)
    return _CITATIONS[paper]


def look_up(known: Mapping[str, Mapping[str, Info]], paper: str, what: str, name: str) -> Info:
    """The table or figure of a paper; ``what`` is "table" or "figure"."""
    if paper not in known:
        advice = near_name(str(paper), known)
        raise refuse("paper", f"must be a paper with a {what}", f"got {paper!r}", advice)
    if name not in known[paper]:
        advice = near_name(str(name), known[paper])
        raise refuse(what, f"must be a {what} of {paper}", f"got {name!r}", advice)
    return known[paper][name]


def published(paper: str, table: str) -> pa.Table:
    """Read a published table, one row per printed cell.

    Parameters
    ----------
    paper
        A key of ``PUBLISHED``, such as ``"wang2021"``.
    table
        A key of ``PUBLISHED[paper]``, such as ``"table1"`` or ``"tableC1"``.

    Returns
    -------
    pyarrow.Table
        The strings data, model, objective, secondary, calibrator, metric, spread_kind and mark; the
        numbers coefficient, value, spread and temperature; and bold. What is not printed is null.

    Raises
    ------
    InputError
        If there is no such paper or table; the message gives the nearest name.

    Examples
    --------
    >>> row = published("mukhoti2020", "table1").to_pylist()[1]
    >>> row["data"], row["model"], row["objective"], row["calibrator"], row["metric"]
    ('cifar100', 'resnet50', 'cross_entropy', 'temperature', 'ece')
    >>> row["value"], row["temperature"]
    (3.42, 2.1)
    """
    look_up(PUBLISHED, paper, "table", table)
    return csv.read_csv(
        Path(__file__).with_name("published") / f"{paper}_{table}.csv",
        read_options=csv.ReadOptions(use_threads=False),
        convert_options=csv.ConvertOptions(
            column_types=TABLE_SCHEMA, null_values=[""], strings_can_be_null=True
        ),
    )
