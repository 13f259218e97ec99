"""Errors with one clear line each: what was wrong, what was expected, what to do."""

from __future__ import annotations

import decimal
import difflib
import unicodedata
from collections.abc import Iterable

__all__ = [
    "AwavoError",
    "CheckpointError",
    "ConfigError",
    "BrokenEnvironmentError",
    "InputError",
    "MissingExtraError",
    "RunFolderError",
    "UnknownNameError",
    "bound_text",
    "confidence_text",
    "did_you_mean",
    "plural",
    "printable",
    "raised",
    "share_text",
    "suggest",
]

# Unicode's categories of control, format, surrogate and unassigned characters.
HIDDEN = ("Cc", "Cf", "Cs", "Cn")


class AwavoError(Exception):
    """Base of everything this package raises on purpose. The command line prints it and exits with code 2."""


class InputError(AwavoError, ValueError):
    """A value, a shape or a type that a function cannot work with."""


class ConfigError(InputError):
    """A configuration that cannot be run."""


class UnknownNameError(InputError):
    """A name that is not registered; the message suggests the nearest one."""


class BrokenEnvironmentError(AwavoError):
    """An environment that breaks the contract of its interface."""


class RunFolderError(AwavoError):
    """A run folder that is missing, damaged, busy, or of another configuration."""


class CheckpointError(RunFolderError):
    """A checkpoint that is torn, altered, or of another run."""


class MissingExtraError(AwavoError):
    """An optional dependency that is not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the nearest known name, or a list of all of them."""
    known = sorted(known)
    return suggest(name, known) or f" Known: {', '.join(known)}."


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the nearest known name, or nothing."""
    known = sorted(known)
    begins = [k.lower() for k in known if len(name) > 2 and k.lower().startswith(name.lower())]
    near = begins[:1] or difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if near:
        match = next(k for k in known if k.lower() == near[0])
        return f" Did you mean '{match}'?"
    return ""


def raised(error: BaseException) -> str:
    """What somebody else's code did, in one line: `raised KeyError: 'x'`, or `called sys.exit(0)`."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({'' if error.code is None else repr(error.code)})"
    return f"raised {type(error).__name__}: {' '.join(str(error)[:300].split())}"


def plural(number: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """The text with control characters spelled out (`\\x1b`): a name from a file must not drive the terminal.

    Line ends and tabs stay; characters that turn the direction of the text are spelled out too.
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in HIDDEN else ascii(c)[1:-1] for c in text)


def bound_text(value: float, up: bool, digits: int = 4) -> str:
    """A bound as text, rounded to the side on which it still holds: an upper one up, a lower one down."""
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    # The twelfth digit is arithmetic's, not the bound's.
    exact = decimal.Context(12).create_decimal_from_float(value)
    return f"{float(decimal.Context(digits, rounding).plus(exact)):.{digits}g}"


def share_text(share: float, up: bool) -> str:
    """A bound on a share in percent, rounded as `bound_text` rounds."""
    return f"{bound_text(100 * share, up, 3)}%"


def confidence_text(delta: float) -> str:
    """1 - delta in percent, with as many digits as it takes: 99.9% is not 100%."""
    return f"{100 * (1 - delta):.14g}%"
