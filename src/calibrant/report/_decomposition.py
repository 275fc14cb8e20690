"""The report's section on what the ECE consists of."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant import metrics as m
from calibrant._core.formatting import show
from calibrant.report._html import Html, name_of, number, number_head, section, table, tag
from calibrant.report._judge import Judged

PART_NAMES = ("ECE", "mean confidence α", "refinement β", "γ", "residual")


def decomposition(judged: Sequence[Judged]) -> Html:
    """One row per model: ECE = α - β - γ + residual."""
    rows = []
    for j in judged:
        parts = m.ece_decomposition(j.p)
        values = (parts.ece, parts.alpha, parts.beta, parts.gamma, parts.residual)
        cells = [number(show(value, percent=True)) for value in values]
        rows.append([tag("th", name_of(j.name), scope="row"), *cells])
    words = (
        "ECE = α − β − γ + residual (Singh et al. 2021, equation 9). A lower mean confidence α "
        "lowers the ECE, and so does a better ranking of correct above wrong predictions: β is the "
        "AUROC times 2PN / (P + N)², for P correct and N wrong predictions. γ = (P² + N²) / "
        "2(P + N)² depends only on the accuracy. The residual is what the equation misses; its "
        "derivation assumes that every bin is overconfident."
    )
    heads = [number_head(name) for name in PART_NAMES]
    caption = "ECE by its parts"
    return section(
        "decomposition",
        "What the ECE consists of",
        tag("p", words),
        table(caption, ["model", *heads], rows),
    )
