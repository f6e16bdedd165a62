"""Operations by a key of the caller's own: the id of a message, an event, or a job and its day."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from .ask import Asking, done, given, is_number, is_text, millis, quoted, utf8
from .tokens import is_claim, is_extended, recorded


class Operations(Asking):
    """The calls of Client about operations. Their names are those that claim_key tells."""

    def claim_key(
        self,
        key: str,
        fingerprint: str,
        lease: float = 30.0,
        policy: str = "hold",
        lease_token: str = "",
        scope: str = "",
        retention: Optional[float] = None,
    ) -> Dict[str, Any]:
        """Claims the operation of a key, 1 to 1,024 bytes, as claim does for a token. The answer
        tells the "operation" too. retention is how many seconds the record stays from its answer
        on, a day by default.
        """
        if not isinstance(key, str) or not key:
            raise ValueError("a key is a str of 1 to 1,024 bytes")
        utf8("the key", key)
        utf8("the fingerprint", fingerprint)
        asked = given(key=key, scope=scope, retention_ms=millis(retention), fingerprint=fingerprint, lease_ms=millis(lease), policy=policy)
        is_whole = lambda claimed: is_text(claimed.get("operation")) and is_claim(claimed)  # noqa: E731
        return self._ask("POST", "/operation/claim", is_whole, asked, lease_token or None)

    def complete_operation(
        self,
        operation: str,
        lease: str,
        status: int = 200,
        headers: Optional[Mapping[str, str]] = None,
        body: bytes = b"",
        not_kept: bool = False,
    ) -> None:
        """As complete, for what claim_key has granted."""
        self._ask("POST", _path(operation, "/complete"), done, recorded(status, headers, body, not_kept), lease)

    def extend_operation(self, operation: str, lease: str, span: float, timeout: Optional[float] = None) -> None:
        """As extend, for what claim_key has granted."""
        self._ask("POST", _path(operation, "/extend"), is_extended, {"lease_ms": millis(span)}, lease, timeout)

    def release_operation(self, operation: str, lease: str) -> None:
        """As release, for what claim_key has granted."""
        self._ask("POST", _path(operation, "/release"), done, None, lease)

    def operation(self, operation: str) -> Dict[str, Any]:
        """The state of an operation, as the service tells its own caller or an operator."""
        return self._ask("GET", _path(operation), lambda shown: is_text(shown.get("state")))

    def forget_operation(self, operation: str) -> None:
        """Has an answer forgotten: the next claim is granted. Repeating it is harmless. It needs
        the role admin.
        """
        self._ask("DELETE", _path(operation), done)

    def begin_resolving(self, operation: str, lease: float = 30.0, lease_token: str = "") -> Dict[str, Any]:
        """Begins to find out what became of an operation in doubt. The answer tells the "fence" to
        close, at whatever keeps the effect, for attempts with it or a smaller one, and the "lease"
        to settle with. With a lease_token, as of claim, it may be repeated.
        """
        return self._ask(
            "POST",
            _path(operation, "/resolve"),
            lambda begun: is_text(begun.get("lease")) and is_number(begun.get("fence")),
            {"lease_ms": millis(lease)},
            lease_token or None,
        )

    def end_resolving(self, operation: str, lease: str) -> None:
        """Says that nothing was found out: the next one may ask soon."""
        self._ask("POST", _path(operation, "/resolve"), done, {"lease_ms": 0}, lease)

    def settle(
        self,
        operation: str,
        outcome: str,
        reason: str = "",
        status: int = 200,
        headers: Optional[Mapping[str, str]] = None,
        body: bytes = b"",
        lease: Optional[str] = None,
    ) -> None:
        """Ends doubt: outcome is "completed" (with the answer), "not-begun" or, without a lease of
        begin_resolving, "refused". Repeating it is harmless. Without a lease it needs the role
        admin.
        """
        answer: Dict[str, Any] = {}
        if outcome == "completed":
            answer = recorded(status, headers, body)
            del answer["body_not_kept"]
        self._ask("POST", _path(operation, "/settle"), done, given(outcome=outcome, reason=reason, **answer), lease)


def _path(operation, verb=""):
    return f"/operation/{quoted(operation)}{verb}"
