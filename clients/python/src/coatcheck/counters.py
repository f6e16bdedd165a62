"""Counters: each value is handed out once."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Optional

from .errors import _millis, _whole


class Counters:
    """The calls of Client about counters."""

    def incr(self, key: str) -> int:
        """Adds 1 to a counter and returns the value that the caller now owns."""
        return self.add(key)["value"]

    def add(
        self,
        key: str,
        by: int = 1,
        *,
        limit: Optional[int] = None,
        ttl: Optional[float] = None,
        request_id: str = "",
        template: str = "",
        calendar: str = "",
        zone: str = "",
        at: str = "",
    ) -> Dict[str, Any]:
        """Adds to a counter: {"key", "first", "value", …}. The caller owns first to value.

        Beyond limit nothing is added (the code is counter-limit). ttl is how many seconds a counter
        lives that begins now. With a request_id the same call gets the same values for a day, so
        that it may be repeated after UnknownOutcome; without one lost values are a gap. A template
        such as ORD-{yyyyMMdd}-{n:6} has the values written, as "number" or "numbers".
        """
        ttl_ms = None if ttl is None else _millis(ttl)
        asked = {"limit": limit, "ttl_ms": ttl_ms, "template": template, "calendar": calendar, "zone": zone, "at": at}
        asked = {name: value for name, value in asked.items() if value not in (None, "")}
        if by != 1:
            asked["by"] = by
        path = _counter("incr", key) + ("?" + urllib.parse.urlencode(asked) if asked else "")
        added = self.request("POST", path, repeat=request_id)
        first, value = added.get("first"), added.get("value")
        return _whole(added, isinstance(first, int) and isinstance(value, int) and value - first + 1 == by)

    def counter(self, key: str) -> int:
        """Reads a counter: the last value that was handed out. The code of one that was never used
        or has expired is not-found.
        """
        read = self.request("GET", _counter("counter", key))
        return _whole(read, isinstance(read.get("value"), int))["value"]


def _counter(what, key):
    return f"/{what}/{urllib.parse.quote(key, safe='')}"
