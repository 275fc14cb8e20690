"""Every claim of the papers, judged on evidence, and the verdicts as a table."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from calibrant._core.checks import near_name, refuse
from calibrant._core.formatting import aligned
from calibrant.papers import (
    _claims_karandikar,
    _claims_loss_report,
    _claims_mukhoti,
    _claims_singh,
    _claims_wang,
)
from calibrant.papers._evidence import Evidence
from calibrant.papers._verdicts import Claim, ClaimVerdict

__all__ = ["CLAIMS", "Claim", "ClaimVerdict", "Evidence", "claims_json", "claims_table", "judge"]

#: Every claim by its name, "W1" to "T2".
CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for paper in (
        _claims_wang,
        _claims_singh,
        _claims_mukhoti,
        _claims_karandikar,
        _claims_loss_report,
    )
    for claim in paper.CLAIMS
}


def judge(
    evidence: Evidence, names: Iterable[str] | None = None, *, needs: bool = False
) -> list[tuple[Claim, ClaimVerdict]]:
    """The verdict of evidence on claims.

    Parameters
    ----------
    evidence
        ``Evidence.published()`` or ``Evidence.measured(out, scale)``.
    names
        Names of the claims, such as ``["W1", "K2"]``; None for all.
    needs
        Whether to compute what would decide the claims that cannot be told.

    Examples
    --------
    >>> [(claim, verdict)] = judge(Evidence.published(), ["W1"])
    >>> verdict.verdict, verdict.cases, verdict.unit, round(verdict.effect, 2)
    ('holds', (12, 12), 'ratio', 2.97)
    """
    wanted = list(CLAIMS if names is None else names)
    for name in wanted:
        if name not in CLAIMS:
            advice = near_name(str(name), CLAIMS)
            raise refuse("claim", "must be a claim of the papers", f"got {name!r}", advice)
    found = [CLAIMS[name] for name in wanted]
    return [(c, c.test_and_need(evidence) if needs else c.test(evidence)) for c in found]


def claims_table(judged: Sequence[tuple[Claim, ClaimVerdict]], *, width: int = 100) -> str:
    """Verdicts as text: claim, verdict, effect with its 95 % interval, cases; details below.

    Parameters
    ----------
    judged
        From :func:`judge`.
    width
        Length of a line, in characters.

    Examples
    --------
    >>> print(claims_table(judge(Evidence.published(), ["S2"]), width=72))
    claim  verdict  effect and 95 % interval                cases
    S2     holds    -0.482 (-0.752 to -0.211) AUROC points  7 of 7
           Temperature scaling changes AUROC by less than 1 point (the paper
           says: it retains much of the refinement). [section 5.1, tables 1
           and 2]
           Change of AUROC by temperature scaling: the interval is inside -1
           to 1 and 7 of 7 cases agree.
           Tested on: imagenet, resnet50; cifar10, vgg16; cifar10, resnet50;
           cifar10, densenet121; cifar100, vgg16; cifar100, resnet50;
           cifar100, densenet121.
           The margin is ours: with -0.5 to 0.5 cannot tell, with -2 to 2
           holds.
    """
    heads = ("claim", "verdict", "effect and 95 % interval", "cases")
    rows = [(c.name, v.verdict, _effect(v), _cases(v)) for c, v in judged]
    first, *shown = aligned([heads, *rows]).splitlines()
    lines, indent = [first], " " * (max(len(row[0]) for row in (heads, *rows)) + 2)
    for (claim, verdict), row in zip(judged, shown, strict=True):
        lines.append(row)
        for words in (f"{claim.statement} [{claim.source}]", verdict.reason, *details(verdict)):
            lines += textwrap.wrap(
                words,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def details(verdict: ClaimVerdict) -> list[str]:
    """Other parts of a claim, where it was tested, other margins than ours, what would decide it.

    >>> [(_, verdict)] = judge(Evidence.published(), ["S2"])
    >>> details(verdict)[1]
    'The margin is ours: with -0.5 to 0.5 cannot tell, with -2 to 2 holds.'
    """
    found = [_other_part(part) for part in verdict.parts if part.reason not in verdict.reason]
    found += [f"Tested on: {'; '.join(verdict.tested)}."] if verdict.tested else []
    if verdict.margins:
        tried = ", ".join(f"with {margin} {word}" for margin, word in verdict.margins)
        found.append(f"The margin is ours: {tried}.")
    return [*found, verdict.needs] if verdict.needs else found


def _other_part(part: ClaimVerdict) -> str:
    """A part that the line of the claim does not show: what it says, with its numbers."""
    if part.effect is None:
        return part.reason
    return f"{part.reason[:-1]} [{_effect(part)}, {_cases(part)} cases]."


def _effect(verdict: ClaimVerdict) -> str:
    if verdict.effect is None:
        return "-"
    if verdict.low is None or verdict.high is None:
        return f"{verdict.effect:.3g} {verdict.unit}"
    return f"{verdict.effect:.3g} ({verdict.low:.3g} to {verdict.high:.3g}) {verdict.unit}"


def _cases(verdict: ClaimVerdict) -> str:
    return "-" if verdict.cases is None else f"{verdict.cases[0]} of {verdict.cases[1]}"


def claims_json(judged: Sequence[tuple[Claim, ClaimVerdict]]) -> str:
    """Verdicts as JSON, one object per claim, with the parts of each.

    Examples
    --------
    >>> import json
    >>> [found] = json.loads(claims_json(judge(Evidence.published(), ["W2"])))
    >>> found["claim"], found["verdict"], [part["cases"] for part in found["parts"]]
    ('W2', 'holds', [[3, 4], [4, 4]])
    """
    rows = [
        {
            "claim": claim.name,
            "paper": claim.paper,
            "statement": claim.statement,
            "source": claim.source,
            "rule": claim.rule,
            "rests_on": claim.rests_on,
            **asdict(verdict),
        }
        for claim, verdict in judged
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False)
