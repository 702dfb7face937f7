"""Where in a response its final answer stands. Linear in the length of the text, read from the end."""

from __future__ import annotations

import re
from collections.abc import Callable

_THINK_END = "</think>"
_BOX_COMMANDS = ("\\boxed", "\\fbox")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED_BOX = re.compile(r"[^\s$]+")
_PLAIN_MARKER = re.compile(r"\banswer(?:\s{0,3}:|\s{1,3}is\b\s{0,3}:?)", re.IGNORECASE)


def after_reasoning(response: str) -> str:
    """Return what follows the last `</think>`, or everything where there is none."""
    end = response.rfind(_THINK_END)
    return response if end < 0 else response[end + len(_THINK_END) :]


def boxed(response: str) -> str | None:
    r"""Return the content of the last `\boxed` or `\fbox`; None if it is missing, empty or never closed.

    A cut-off last box hides an earlier one: the model had taken its earlier answer back.
    """
    text = after_reasoning(response)
    start, command = max((text.rfind(command), command) for command in _BOX_COMMANDS)
    if start < 0:
        return None
    position = start + len(command)
    while position < len(text) and text[position].isspace():
        position += 1
    if position < len(text) and text[position] == "{":
        return _braced(text, position)
    unbraced = _UNBRACED_BOX.match(text, position)
    is_command = position > start + len(command) or text.startswith("\\", position)
    return unbraced.group() if unbraced and is_command else None


def _braced(text: str, opening: int) -> str | None:
    r"""Return what stands between the brace at `opening` and its partner; `\{` and `\}` are not braces."""
    depth = 0
    for brace in _BRACE.finditer(text, opening):
        if brace.group() == "{":
            depth += 1
        elif brace.group() == "}":
            depth -= 1
            if depth == 0:
                return text[opening + 1 : brace.start()].strip() or None
    return None


def gsm8k(response: str) -> str | None:
    """Return the rest of the line after the last `####`; None if there is no marker or nothing after it."""
    text = after_reasoning(response)
    marker = text.rfind("####")
    return None if marker < 0 else _rest_of_line(text, marker + 4)


def plain(response: str) -> str | None:
    """Return the rest of the line after the last `Answer:` or `answer is`, else the whole response."""
    text = after_reasoning(response)
    end = None
    for marker in _PLAIN_MARKER.finditer(text):
        end = marker.end()
    return text.strip() or None if end is None else _rest_of_line(text, end)


def _rest_of_line(text: str, start: int) -> str | None:
    end = text.find("\n", start)
    return text[start : len(text) if end < 0 else end].strip() or None


EXTRACTORS: dict[str, Callable[[str], str | None]] = {"boxed": boxed, "gsm8k": gsm8k, "plain": plain}
