"""Rate limits: so much in a span of time, among all callers of a name."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Optional

from .errors import _millis, _whole


class Limits:
    """The calls of Client about rate limits."""

    def take_limit(self, name: str, rate: int, per: float, burst: Optional[int] = None, cost: int = 1) -> Dict[str, Any]:
        """Takes cost, all of it or nothing: {"allowed", "remaining", "reset_ms"}. A negative cost
        gives back, 0 looks. Without room it raises Unavailable (limit-reached; retry_after is when
        there is, facts what is left). After UnknownOutcome the cost may have been taken.
        """
        asked = {"rate": rate, "per_ms": _millis(per), "cost": cost}
        if burst is not None:
            asked["burst"] = burst
        taken = self.request("POST", "/limit/" + urllib.parse.quote(name, safe=""), asked)
        return _whole(taken, taken.get("allowed") is True and isinstance(taken.get("remaining"), int))

    def reset_limit(self, name: str) -> None:
        """Forgets what is in use. Repeating it is harmless. It needs the role admin."""
        answer = self.request("DELETE", "/limit/" + urllib.parse.quote(name, safe=""))
        _whole(answer, not answer)
