"""The training objective: a primary loss plus weighted secondary ones."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from calibrant._core.checks import check_at_least, is_number, near_name, refuse
from calibrant._core.options import check_option_names, parse_value
from calibrant.losses._batch import check_batch, check_class_weights, mean, sample_weights
from calibrant.losses._registry import LOSSES, Loss, get_loss

Spec = str | Mapping[str, Any]
# A plus sign between terms, not that of an exponent such as 1e+3.
TERMS = re.compile(r"(?<![0-9.][eE])\+")
# The import path of a loss, which options may follow.
OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(?=$|:)")
MINUS = re.compile(r"(?<=[^+\s])\s+-\s+")  # between terms; a sign before a number needs no space


@dataclass(frozen=True)
class _Term:
    """A loss of the table with its options, and its factor in the sum."""

    loss: Loss
    options: dict[str, Any]
    weight: float


class Objective(nn.Module):
    """Primary loss + the sum of weight times secondary loss, as one number for a batch.

    Values per sample are averaged (over the samples of all ranks with ``gather``); with class
    weights the primary's mean is the weighted one, as in PyTorch. Weight decay belongs to the
    optimiser.

    Parameters
    ----------
    primary
        Name of a loss in ``LOSSES``, a mapping with its ``name`` and options, or the whole
        objective as a string, as in :meth:`parse`.
    secondary
        The same, or a list of such; None for the primary alone.
    weight
        Factor of the secondary, at least 0; a list where there are several. That of ``logit_norm``
        may be negative (wang2021, section 5.2).
    class_weights
        K factors for the primary loss.
    ignore_index
        Class index that marks samples to ignore, for every loss.
    gather
        Whether the mean and the batch losses see all ranks of a distributed run as one batch, so
        that it equals one process. Without a distributed run nothing changes.
    compiled
        Whether ``torch.compile`` makes one graph of all terms. The first batch then takes up to a
        minute, or seconds where PyTorch kept the graph of an earlier run. Measured on a CPU with
        128 samples and 10 classes, without the compiled extension, a step is then 0.3 ms shorter
        with ``soft_avuc`` and not shorter with ``focal`` alone. The extension saves as much without
        it, so ``train`` does not use it.

    Examples
    --------
    >>> objective = Objective("focal", {"name": "soft_avuc", "kappa": 0.7}, weight=0.5)
    >>> z, y = torch.tensor([[2.0, 0.0], [0.0, 0.5]]), torch.tensor([0, 0])
    >>> objective(z, y)
    tensor(0.1915)
    >>> objective.parts
    {'total': tensor(0.1915), 'focal': tensor(0.1176), 'soft_avuc': tensor(0.1478)}
    >>> Objective("focal:gamma=3 + 0.5*mmce")
    Objective(focal(gamma=3) + 0.5 mmce)
    """

    class_weights: Tensor | None
    parts: dict[str, Tensor]

    def __init__(
        self,
        primary: Spec = "cross_entropy",
        secondary: Spec | Sequence[Spec] | None = None,
        weight: float | Sequence[float] = 1.0,
        *,
        class_weights: Tensor | Sequence[float] | None = None,
        ignore_index: int | None = None,
        gather: bool = False,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(primary, str) and not primary.isidentifier() and primary.strip():
            primary, secondary, weight = _from_string(primary, secondary)
        self.primary = _term("primary", primary, 1.0)
        self.secondaries = _secondaries(secondary, weight)
        weights = None if class_weights is None else torch.as_tensor(class_weights)
        self.register_buffer("class_weights", weights)
        self.ignore_index = ignore_index
        self.gather = gather
        self.compiled = _check_compiled(compiled, gather=gather)
        self.parts = {}
        self._computed = torch.compile(self._values, fullgraph=True) if compiled else self._values
        self._check()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Objective:
        """Build an objective from a mapping of names and options.

        ``primary`` is a name or a mapping with ``name`` and options; ``secondary`` the same with
        its ``weight``, or a list of such. ``class_weights``, ``ignore_index``, ``gather`` and
        ``compiled`` may be given too.

        Examples
        --------
        >>> config = {"primary": "focal", "secondary": {"name": "mmce", "weight": 2}}
        >>> Objective.from_config(config)
        Objective(focal + 2 mmce)
        """
        known = ("primary", "secondary", "class_weights", "ignore_index", "gather", "compiled")
        for key in config:
            if key not in known:
                raise refuse("config", "has an unknown key", f"got {key!r}", near_name(key, known))
        rest = dict(config)
        secondary, weights = _unweighted(_listed(rest.pop("secondary", None)))
        return cls(rest.pop("primary", "cross_entropy"), secondary, weights, **rest)

    @classmethod
    def parse(cls, text: str, **options: Any) -> Objective:
        """Build an objective from a string, as on the command line.

        ``name:option=value,option=value``, further losses after ``+`` (or `` - ``, where a negative
        weight is allowed), each with its weight before ``*``. ``options`` are ``class_weights``,
        ``ignore_index``, ``gather`` and ``compiled``.

        Examples
        --------
        >>> Objective.parse("focal:gamma=3 + 0.5*soft_avuc:kappa=0.7,temperature=0.1")
        Objective(focal(gamma=3) + 0.5 soft_avuc(kappa=0.7, temperature=0.1))
        """
        return cls.from_config({**parse_objective(text), **options})

    def forward(self, logits: Tensor, labels: Tensor, **per_batch: Tensor) -> Tensor:
        """Value of the objective; ``parts`` then holds each term, detached and unweighted.

        ``per_batch`` are the options that change with the batch, such as the ``correctness`` of
        ``correctness_ranking``.
        """
        self._check_per_batch(per_batch)
        values = self._computed(logits, labels, per_batch)
        names = ("total", *(term.loss.name for term in self._terms))
        self.parts = {name: value.detach() for name, value in zip(names, values, strict=True)}
        return values[0]

    def _values(
        self, logits: Tensor, labels: Tensor, per_batch: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """The objective, and each of its terms."""
        total = self._value(self.primary, logits, labels, per_batch, self.class_weights)
        values = [total]
        for term in self.secondaries:
            values.append(self._value(term, logits, labels, per_batch, None))
            total = total + term.weight * values[-1]
        return [total, *values]

    def _check_per_batch(self, given: Mapping[str, Tensor]) -> None:
        wanted = self.per_batch
        for name in given:
            if name not in wanted:
                rule = f"has no loss that takes {name!r}"
                raise refuse("objective", rule, None, "Leave it out.")
        for name in wanted:
            if name not in given:
                advice = f"Call objective(logits, labels, {name}=…)."
                raise refuse(name, "must be given with every batch", "got none", advice)

    @property
    def per_batch(self) -> tuple[str, ...]:
        """Names of the options that :meth:`forward` needs with every batch."""
        return tuple(name for term in self._terms for name in term.loss.per_batch)

    @property
    def _terms(self) -> tuple[_Term, ...]:
        return (self.primary, *self.secondaries)

    def _value(
        self,
        term: _Term,
        logits: Tensor,
        labels: Tensor,
        per_batch: Mapping[str, Tensor],
        class_weights: Tensor | None,
    ) -> Tensor:
        loss = term.loss
        options = dict(term.options)
        if not loss.own or self.ignore_index is not None:
            options["ignore_index"] = self.ignore_index
        options.update({name: per_batch[name] for name in loss.per_batch if name in per_batch})
        if not loss.per_sample:
            if "gather" in loss.options:
                options["gather"] = self.gather
            return loss.function(logits, labels, **options)
        if class_weights is not None:
            options["class_weights"] = class_weights
        values = loss.function(logits, labels, **options)
        if loss.own and values.ndim == 0:
            return values
        if self.ignore_index is None and class_weights is None and not self.gather:
            return values.mean()
        batch = check_batch(logits, labels, self.ignore_index)
        weights = sample_weights(batch, check_class_weights(class_weights, batch))
        return mean(values, weights, gather=self.gather)

    def _check(self) -> None:
        """Call every loss once, so that an invalid option raises before training starts."""
        if self.class_weights is not None and "class_weights" not in self.primary.loss.options:
            rule = "needs a primary loss that takes them"
            advice = "Use cross_entropy or another primary loss."
            raise refuse("class_weights", rule, f"got {self.primary.loss.name}", advice)
        size = 1000 if self.class_weights is None else len(self.class_weights)
        logits, labels = torch.zeros(2, size), torch.zeros(2, dtype=torch.int64)
        for term in self._terms:
            given = dict.fromkeys(term.loss.per_batch, torch.zeros(2))
            term.loss.function(logits, labels, **given, **term.options)

    def __repr__(self) -> str:
        terms = [_shown(self.primary)]
        terms += [f"{term.weight:g} {_shown(term)}" for term in self.secondaries]
        return f"Objective({' + '.join(terms)})"


def _check_compiled(compiled: Any, *, gather: bool) -> bool:
    if not isinstance(compiled, bool):
        raise refuse("compiled", "must be true or false", f"got {compiled!r}", "Try True.")
    if compiled and gather:
        rule, advice = "cannot gather from other ranks", "Leave out one of the two."
        raise refuse("compiled", rule, "got gather=True too", advice)
    return compiled


def _shown(term: _Term) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in term.options.items())
    return f"{term.loss.name}({options})" if options else term.loss.name


def _from_string(
    text: str, secondary: Spec | Sequence[Spec] | None
) -> tuple[Spec, list[Spec] | None, list[float]]:
    """Primary, secondaries and their weights, all from one string."""
    if secondary is not None:
        rule = "must be left out where primary is a whole objective"
        raise refuse("secondary", rule, f"got {secondary!r}", "Add it to the string after +.")
    config = parse_objective(text)
    return config["primary"], *_unweighted(config.get("secondary", []))


def _unweighted(specs: Sequence[Spec]) -> tuple[list[Spec] | None, list[float]]:
    """Separate losses and weights."""
    weights = [spec.get("weight", 1.0) if isinstance(spec, Mapping) else 1.0 for spec in specs]
    bare: list[Spec] = [
        {key: value for key, value in spec.items() if key != "weight"}
        if isinstance(spec, Mapping)
        else spec
        for spec in specs
    ]
    return bare or None, weights


def _secondaries(
    specs: Spec | Sequence[Spec] | None, weights: float | Sequence[float]
) -> tuple[_Term, ...]:
    listed = _listed(specs)
    factors = list(weights) if isinstance(weights, Sequence) else [weights] * len(listed)
    if len(factors) != len(listed):
        rule = f"must be one number for each of the {len(listed)} secondary losses"
        raise refuse("weight", rule, f"got {len(factors)}", "Try weight=[1.0, 0.5].")
    terms = [_weighted(spec, factor) for spec, factor in zip(listed, factors, strict=True)]
    names = [term.loss.name for term in terms]
    if len(set(names)) < len(names):
        raise refuse("secondary", "must name each loss once", f"got {names}", "Add the weights.")
    return tuple(terms)


def _weighted(spec: Spec, factor: Any) -> _Term:
    """A secondary term; a negative weight only where a paper has one."""
    term = _term("secondary", spec, 1.0)
    signed = term.loss.signed and is_number(factor) and math.isfinite(factor)
    weight = float(factor) if signed else check_at_least("weight", factor, 0, example=1)
    return replace(term, weight=weight)


def _listed(specs: Spec | Sequence[Spec] | None) -> list[Spec]:
    if specs is None:
        return []
    return [specs] if isinstance(specs, str | Mapping) else list(specs)


def _term(place: str, spec: Spec, weight: float) -> _Term:
    """Look up a loss and check the names of its options."""
    if not isinstance(spec, str) and not (isinstance(spec, Mapping) and "name" in spec):
        rule = "must be the name of a loss or a mapping with its name and options"
        advice = "Try 'focal' or {'name': 'focal', 'gamma': 3}."
        raise refuse(place, rule, f"got {spec!r}", advice)
    options = {} if isinstance(spec, str) else dict(spec)
    loss = get_loss(spec if isinstance(spec, str) else options.pop("name"))
    shared = ("class_weights", "ignore_index", "gather", *loss.per_batch)
    free = [name for name in loss.options if name not in shared]
    for name in options:
        if name in shared:
            advice = f"Give {name} to the Objective itself."
            if name in loss.per_batch:
                advice = f"Call objective(logits, labels, {name}=…)."
            raise refuse(f"{loss.name} option {name}", "is set elsewhere", None, advice)
    check_option_names(loss.name, options, free)
    missing = [
        name
        for name in free
        if loss.options[name].default is inspect.Parameter.empty and name not in options
    ]
    if missing:
        advice = f"Pass {{'name': {loss.name!r}, {missing[0]!r}: …}}."
        raise refuse(loss.name, f"needs the option {missing[0]!r}", "got none", advice)
    return _Term(loss, options, weight)


def parse_objective(text: str) -> dict[str, Any]:
    """Parse a string into the mapping that ``Objective.from_config`` takes.

    Examples
    --------
    >>> parse_objective("brier + 2*mmce")
    {'primary': {'name': 'brier'}, 'secondary': [{'name': 'mmce', 'weight': 2}]}
    >>> parse_objective("cross_entropy - 0.01*logit_norm")["secondary"]
    [{'name': 'logit_norm', 'weight': -0.01}]
    >>> parse_objective("focal:gamma=1e+0 + 1e+3*mmce")["secondary"]
    [{'name': 'mmce', 'weight': 1000.0}]
    """
    terms = [_parse_term(part) for part in TERMS.split(MINUS.sub(" + -", text))]
    primary, *rest = terms
    if "weight" in primary:
        advice = "Leave its weight out; weights are relative to it."
        raise refuse("objective", "must start with the primary loss", f"got {text!r}", advice)
    config: dict[str, Any] = {"primary": primary}
    if rest:
        config["secondary"] = rest
    return config


def _parse_term(text: str) -> dict[str, Any]:
    weight, star, loss = text.rpartition("*")
    name, _, options = loss.strip().partition(":")
    if name not in LOSSES and (own := OWN.match(loss.strip())):
        name, options = own[0], loss.strip()[own.end() + 1 :]
    term: dict[str, Any] = {"name": name.strip()}
    for option in filter(None, (part.strip() for part in options.split(","))):
        key, equals, value = option.partition("=")
        if not equals:
            advice = "Try focal:gamma=3."
            raise refuse("objective", "must have options as name=value", f"got {option!r}", advice)
        term[key.strip()] = parse_value(value.strip())
    if star:
        term["weight"] = parse_value(weight.strip())
    return term
