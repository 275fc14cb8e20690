"""Errors and argument checks: all user input is validated here.

Every message names the argument, the rule, the value it got, and what to do next.
"""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice

# Names that a message lists, and how much of each: the columns of a file may be any number.
MOST_NAMES, LONGEST_NAME = 200, 100
MOST_PROCESSES = 100_000  # or threads


class InputError(ValueError):
    """Invalid value, array or file, with the reason and the next step."""


class NotFittedError(InputError):
    """A calibrator was used before ``fit``."""


class ConvergenceError(RuntimeError):
    """A fit did not reach the optimum of its objective, so there is no result."""


class CalibrationWarning(UserWarning):
    """A fit succeeded, but with a caveat."""


class FileNote(CalibrationWarning):
    """A file was read, but not all of it."""


def refuse(argument: str, rule: str, got: str | None, advice: str) -> InputError:
    """Build the one kind of error message this package uses; ``got`` where it says something new.

    >>> print(refuse("bins", "must be a whole number of at least 1", "got 0", "Try bins=15."))
    bins must be a whole number of at least 1; got 0. Try bins=15.
    >>> print(refuse("recipe", "has no option 'x'", None, "Known: epochs."))
    recipe has no option 'x'. Known: epochs.
    """
    came = "" if got is None else f"; {shortened(got)}"
    return InputError(f"{shortened(argument)} {shortened(rule)}{came}. {advice}")


def shortened(text: str, most: int = 400) -> str:
    """Text cut to what a message can hold: names and cells of files may be megabytes long.

    >>> shortened("a" * 20, most=10)
    'aaaaaaaaa…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable(text: str, keep: str = "") -> str:
    r"""Text that is safe to print on a terminal: control characters are escaped, as in \\x1b.

    >>> print(printable("a\x1b[31mb\n"))
    a\x1b[31mb\n
    """
    if text.isprintable():
        return text
    harmful = (
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    )  # control characters, text direction, surrogates, line breaks
    return "".join(
        letter
        if letter in keep or unicodedata.category(letter) not in harmful
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def near_name(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, or list them, as far as a message can hold them.

    >>> near_name("adaptiv_ece", ["ece", "adaptive_ece"])
    "Did you mean 'adaptive_ece'?"
    """
    names = _shown(known)
    listed = f"Known: {', '.join(names[:MOST_NAMES])}{' …' if len(names) > MOST_NAMES else '.'}"
    return did_you_mean(name, names) or listed


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Suggest the closest known name, or None where none is close."""
    import difflib

    close = difflib.get_close_matches(shortened(name, LONGEST_NAME), _shown(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else None


def _shown(known: Iterable[str]) -> list[str]:
    """As many known names as a message can hold, and one more where there are more."""
    return [shortened(name, LONGEST_NAME) for name in islice(known, MOST_NAMES + 1)]


def check_bins(bins: int) -> int:
    """Return ``bins`` if it is a usable number of bins."""
    return check_count("bins", bins, least=1, most=1_000_000, example=15)


def is_number(value: object) -> bool:
    """Whether ``value`` is a real number and not a bool."""
    if type(value) is float:  # asking for the abstract class takes longer
        return True
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_count(name: str, value: int, *, least: int, most: int, example: int) -> int:
    """Return ``value`` if it is a whole number from ``least`` to ``most``."""
    whole = isinstance(value, int) or (hasattr(value, "__index__") and not isinstance(value, bool))
    if isinstance(value, bool) or not whole or not least <= int(value) <= most:
        rule = f"must be a whole number from {least:,} to {most:,}"
        raise refuse(name, rule, f"got {value!r}", f"Try {name}={example}.")
    return int(value)


def check_processes(**counts: int | None) -> None:
    """Check numbers of workers and threads; None leaves the choice to the program."""
    for name, value in counts.items():
        if value is not None:
            check_count(name, value, least=1, most=MOST_PROCESSES, example=2)


def check_norm(norm: float, *, name: str = "norm", most: float = math.inf) -> float:
    """Return the order p of an L_p norm, 1 <= p <= ``most``."""
    if not is_number(norm) or not 1 <= norm <= most:
        end = "(or math.inf for the largest gap)" if most == math.inf else f"and at most {most:g}"
        rule = f"must be a number p >= 1 {end}"
        raise refuse(name, rule, f"got {norm!r}", f"Try {name}=1 or {name}=2.")
    return float(norm)


def check_fraction(name: str, value: float, *, example: float) -> float:
    """Return ``value`` if it lies strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        rule = "must lie strictly between 0 and 1"
        raise refuse(name, rule, f"got {value!r}", f"Try {name}={example}.")
    return float(value)


def check_positive(name: str, value: float, *, example: float) -> float:
    """Return ``value`` if it is a finite number above 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise refuse(name, "must be a finite number above 0", f"got {value!r}", f"Try {example}.")
    return float(value)


def check_at_least(
    name: str, value: float, least: float, *, example: float, otherwise: str = ""
) -> float:
    """Return ``value`` if it is a finite number of at least ``least``.

    ``otherwise`` names the alternatives that the caller accepts.
    """
    if not is_number(value) or not least <= value < math.inf:
        rule = f"must be a finite number of at least {least:g}{otherwise}"
        raise refuse(name, rule, f"got {value!r}", f"Try {name}={example:g}.")
    return float(value)


def check_seed(seed: int) -> int:
    """Return ``seed`` if it is a valid seed."""
    return check_count("seed", seed, least=0, most=2**63 - 1, example=0)


def check_share_or_count(
    name: str, value: object, *, example: float, least: int = 1, written: str | None = None
) -> float | int:
    """Return ``value``: an integer is a number of samples, a float a fraction.

    ``written`` is what the user wrote, if it differs.
    """
    if isinstance(value, float) and 0 < value < 1:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    rule = "must be a fraction between 0 and 1, or an integer number of samples"
    got = f"got {value!r}" if written is None else f"got {written!r}"
    raise refuse(name, rule, got, f"Try {example:g} or 5000.")


def check_folds(folds: int, units: int, what: str = "samples") -> int:
    """Return ``folds`` if there are enough samples, or clusters of them, for it."""
    if units < 2:  # noqa: PLR2004
        rule, advice = f"must have at least two {what} for folds", "Collect more predictions."
        raise refuse("p", rule, f"got {units}", advice)
    check_count("folds", folds, least=2, most=1_000_000_000, example=min(5, units))
    if folds > units:
        rule = f"must be at most {units:,}, the number of {what}"
        raise refuse("folds", rule, f"got {folds}", f"Try folds={min(5, units)}.")
    return int(folds)


def check_per_sample(
    argument: str, shape: tuple[int, ...], num_samples: int, what: str = "entry per sample"
) -> None:
    """Reject the shape of an array that has not exactly one entry per sample."""
    if shape != (num_samples,):
        rule = f"must have shape ({num_samples},): one {what}"
        advice = "Check that both come from the same data set."
        raise refuse(argument, rule, f"got shape {shape}", advice)


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        *first, last = map(repr, choices)
        advice = did_you_mean(str(value), choices) or "Choose one of these."
        rule = f"must be {', '.join(first)}{' or ' if first else ''}{last}"
        raise refuse(name, rule, f"got {value!r}", advice)
    return value
