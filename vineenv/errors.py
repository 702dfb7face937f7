"""The error a user can mend, and the words it is told in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Bad input: the message says what was given, what is allowed and the nearest match."""


class RunStoppedError(RuntimeError):
    """A run cannot go on in a useful way: the message says why and what may help."""


class EngineDiedError(RunStoppedError):
    """The process that served the model is gone; a new one may do."""


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name closest to `given`, or None when none is close.

    One that differs in upper and lower case alone is closest of all.
    """
    names = list(allowed)
    for name in names:
        if name.lower() == given.lower():
            return name
    matches = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(kind: str, given: str, allowed: Iterable[str]) -> UsageError:
    """Build the error for a name that is none of those allowed."""
    names = sorted(allowed)
    hint = nearest(given, names)
    guess = f" Did you mean {hint!r}?" if hint else ""
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return UsageError(f"Unknown {kind} {given!r}.{guess} Known: {shown or 'none'}.")
