"""What the subjects have in common: how they ask, and what they refuse to send."""

from __future__ import annotations

import json
import math
import re
import urllib.parse
from typing import Any, Callable, Dict, Mapping, Optional

_name = re.compile(r"[A-Za-z0-9._:~@-]{1,200}")


class Asking:
    """What sends the requests of the subjects: see Client."""

    def _ask(
        self,
        method: str,
        path: str,
        whole: Callable[[Dict[str, Any]], Any],
        message: Optional[Mapping[str, Any]] = None,
        lease: Optional[str] = None,
        timeout: Optional[float] = None,
        repeat: str = "",
        longer: float = 0.0,
    ) -> Dict[str, Any]:
        raise NotImplementedError


def done(answer):
    """Reports whether an answer is one without a body."""
    return not answer


def named(base, name):
    """The path of something with a name. What cannot be one is not sent: it would be another
    path.
    """
    if not isinstance(name, str) or not _name.fullmatch(name) or not name.strip("."):
        raise ValueError("a name has 1 to 200 characters of A-Z a-z 0-9 . _ : ~ @ -, and more than dots")
    return f"{base}/{name}"


def quoted(text):
    """A text as one part of a path."""
    return urllib.parse.quote(text, safe="")


def given(**members):
    """Those of the members that are there."""
    return {name: value for name, value in members.items() if value is not None and value != ""}


def written(value):
    """A value as JSON, in the bytes that JSON.stringify writes too. Half of a surrogate pair, which
    UTF-8 cannot write, is escaped. What JSON cannot write is a TypeError, ValueError or
    RecursionError.
    """
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def utf8(what, text):
    """Refuses what is no text, or cannot be written in UTF-8: two of it could look the same."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has half of a surrogate pair, which is no text") from None


def with_query(path, **parameters):
    """A path with those of the parameters that are there."""
    there = given(**parameters)
    return f"{path}?{urllib.parse.urlencode(there)}" if there else path


def millis(seconds):
    """Seconds as they are sent, rounded up; None stays None."""
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise ValueError("a duration is a finite number of seconds")
    return math.ceil(round(seconds * 1000, 6))  # 1.1 s are 1100 ms, not 1101


def is_number(value):
    """Reports whether a value of JSON is an integer of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def is_text(value):
    """Reports whether a value of JSON is a text with something in it."""
    return isinstance(value, str) and value != ""
