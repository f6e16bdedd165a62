"""Operations by a key of the caller's own: an id that the work already has."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Mapping, Optional

from .errors import _claimed, _millis, _recorded, _whole


class Operations:
    """The calls of Client about operations. Their names are those that claim_key tells."""

    def claim_key(
        self,
        key: str,
        fingerprint: str,
        lease: float = 30.0,
        policy: str = "hold",
        owner: str = "",
        scope: str = "",
        retention: Optional[float] = None,
    ) -> Dict[str, Any]:
        """Claims the operation of a key, 1 to 1,024 bytes, as Client.claim does for a token. The
        answer tells the "operation" too. retention is how many seconds the record stays.
        """
        asked = {"key": key, "scope": scope, "fingerprint": fingerprint, "lease_ms": _millis(lease), "policy": policy, "owner": owner}
        if retention is not None:
            asked["retention_ms"] = _millis(retention)
        claimed = self.request("POST", "/operation/claim", {name: value for name, value in asked.items() if value != ""})
        _whole(claimed, claimed.get("operation"))
        return _claimed(claimed)

    def complete_operation(
        self,
        operation: str,
        lease: str,
        status: int = 200,
        headers: Optional[Mapping[str, str]] = None,
        body: bytes = b"",
        not_kept: bool = False,
    ) -> None:
        """Client.complete for what claim_key has granted."""
        self._on(operation, "complete", _recorded(status, headers, body, not_kept), lease)

    def extend_operation(self, operation: str, lease: str, span: float, timeout: Optional[float] = None) -> None:
        """Client.extend for what claim_key has granted."""
        extended = self.request("POST", _path(operation, "/extend"), {"lease_ms": _millis(span)}, lease, timeout)
        _whole(extended, extended.get("lease_until"))

    def release_operation(self, operation: str, lease: str) -> None:
        """Client.release for what claim_key has granted."""
        self._on(operation, "release", None, lease)

    def operation(self, operation: str) -> Dict[str, Any]:
        """Its state, for its own caller or an operator."""
        shown = self.request("GET", _path(operation))
        return _whole(shown, shown.get("operation") == operation)

    def forget_operation(self, operation: str) -> None:
        """Forgets a recorded answer, so that the next claim runs. It needs the role admin."""
        answer = self.request("DELETE", _path(operation))
        _whole(answer, not answer)

    def settle(
        self, operation: str, outcome: str, reason: str = "", status: int = 200, headers: Optional[Mapping[str, str]] = None, body: bytes = b""
    ) -> None:
        """Ends doubt: outcome is completed, with the answer, not-begun or refused. Repeating it is
        harmless. It needs the role admin.
        """
        message: Dict[str, Any] = {"outcome": outcome, "reason": reason}
        if outcome == "completed":
            recorded = _recorded(status, headers, body, False)
            message.update({name: recorded[name] for name in ("status", "headers", "body_base64")})
        self._on(operation, "settle", message)

    def _on(self, operation, verb, message, lease=None):
        """Posts what the service answers without a body."""
        answer = self.request("POST", _path(operation, "/" + verb), message, lease)
        _whole(answer, not answer)


def _path(operation, verb=""):
    return f"/operation/{urllib.parse.quote(operation, safe='')}{verb}"
