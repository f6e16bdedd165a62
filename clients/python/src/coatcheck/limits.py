"""Rate limits: so much in a span of time, among all callers of a name."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .ask import Asking, done, given, is_number, millis, named


class Limits(Asking):
    """The calls of Client about rate limits."""

    def take_limit(self, name: str, rate: int, per: float, burst: Optional[int] = None, cost: int = 1) -> Dict[str, Any]:
        """Takes a cost, all of it or nothing: {"remaining", "reset"}, reset in seconds. Without
        room it raises Error (limit-reached; retry_after is when there is). A negative cost gives
        back, for the role admin; 0 only looks. per is in seconds. After UnknownOutcome the cost may
        have been taken.
        """

        def whole(taken):
            return taken.get("allowed") is True and all(is_number(taken.get(fact)) for fact in ("remaining", "reset_ms"))

        taken = self._ask("POST", named("/limit", name), whole, given(rate=rate, per_ms=millis(per), burst=burst, cost=cost))
        return {"remaining": taken["remaining"], "reset": taken["reset_ms"] / 1000}

    def reset_limit(self, name: str) -> None:
        """Forgets what is in use. Repeating it is harmless. It needs the role admin."""
        self._ask("DELETE", named("/limit", name), done)
