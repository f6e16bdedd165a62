"""Counters: each value is handed out once."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .ask import Asking, given, is_number, millis, named, with_query


class Counters(Asking):
    """The calls of Client about counters."""

    def incr(self, key: str) -> int:
        """Adds 1 and returns the value, which no other call gets. After UnknownOutcome: a gap."""
        return self.add(key)["value"]

    def add(
        self,
        key: str,
        by: int = 1,
        *,
        limit: Optional[int] = None,
        ttl: Optional[float] = None,
        after_loss: str = "",
        request_id: str = "",
        template: str = "",
        calendar: str = "",
        zone: str = "",
    ) -> Dict[str, Any]:
        """Adds by: {"key", "first", "value", "numbers"}. The caller owns first to value.

        Beyond limit nothing is added (the code is counter-limit). ttl is how many seconds the
        counter lives if this call begins it; of a counter without an end it is refused
        (counter-permanent). With a request_id the same call gets the same values for a day, so that
        it may be repeated after UnknownOutcome; without one lost values are a gap. A template such
        as ORD-{yyyyMMdd}-{n:6} has the values written: they are the numbers. after_loss="stay" is
        for a count with a limit and an end whose values nobody uses: see docs/counters.md.
        """
        terms = {"limit": limit, "ttl_ms": millis(ttl), "after_loss": after_loss}
        path = with_query(named("/incr", key), by=by, template=template, calendar=calendar, zone=zone, **terms)

        def whole(added):
            first, value, of = added.get("first"), added.get("value"), str(added.get("key"))
            return is_number(first) and is_number(value) and value - first + 1 == by and (of == key or of.startswith(key + ":"))

        added = self._ask("POST", path, whole, repeat=request_id)
        numbers = added.get("numbers") or ([added["number"]] if "number" in added else [])
        return {"key": added["key"], "first": added["first"], "value": added["value"], "numbers": numbers}

    def counter(self, key: str) -> int:
        """The last value that was handed out. It changes nothing. The code of a counter that was
        never used or has expired is not-found.
        """
        return self._ask("GET", named("/counter", key), lambda read: read.get("key") == key and is_number(read.get("value")))["value"]

    def set_counter(self, key: str, value: int, *, ttl: Optional[float] = None, back: bool = False) -> None:
        """Sets a counter: the next value is one more. ttl is how many seconds it lives, None for
        ever. A value below the counter hands values out again: it is refused (the code is
        counter-back) unless back. It needs the role admin.
        """
        path = with_query(named("/counter", key), back="true" if back else None)
        self._ask("PUT", path, lambda now: now.get("key") == key and now.get("value") == value, given(value=value, ttl_ms=millis(ttl)))
