"""Tokens that the service issues.

https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md says what each answer and each lost
answer means; this package is that page as code.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, Mapping, Optional

from .ask import Asking, done, given, is_number, is_text, millis, quoted, utf8
from .response import Response


class Tokens(Asking):
    """The calls of Client about tokens."""

    def issue(self, scope: str = "", ttl: Optional[float] = None) -> Dict[str, Any]:
        """Issues a token that may be claimed once within ttl seconds: {"token", "expires_at",
        "scope"}. After UnknownOutcome issue another: the lost one was not handed out.
        """
        return self._ask("POST", "/token", lambda issued: is_text(issued.get("token")), given(scope=scope, ttl_ms=millis(ttl)))

    def status(self, token: str) -> Dict[str, Any]:
        """The state of a token, as the service tells it."""
        return self._ask("GET", _path(token), lambda shown: is_text(shown.get("state")))

    def claim(self, token: str, fingerprint: str, lease: float, policy: str = "hold", lease_token: str = "") -> Dict[str, Any]:
        """Looks at a token and takes it: {"outcome": "granted", "lease", "fence", …} or {"outcome":
        "replay", "response": {…}}.

        lease_token is the secret to be the lease, secrets.token_urlsafe(16), a new one for each
        attempt: repeating the claim with the same one gets the same grant.
        """
        utf8("the fingerprint", fingerprint)
        asked = given(fingerprint=fingerprint, lease_ms=millis(lease), policy=policy)
        return self._ask("POST", _path(token, "/claim"), is_claim, asked, lease_token or None)

    def complete(
        self,
        token: str,
        lease: str,
        status: int = 200,
        headers: Optional[Mapping[str, str]] = None,
        body: bytes = b"",
        not_kept: bool = False,
    ) -> None:
        """Records the answer of the attempt that lease proves. Repeating it is harmless. not_kept
        records that there is one, without its body.
        """
        self._ask("POST", _path(token, "/complete"), done, recorded(status, headers, body, not_kept), lease)

    def extend(self, token: str, lease: str, span: float, timeout: Optional[float] = None) -> None:
        """The heartbeat: the lease ends that many seconds from now. Repeating it is harmless."""
        self._ask("POST", _path(token, "/extend"), is_extended, {"lease_ms": millis(span)}, lease, timeout)

    def release(self, token: str, lease: str) -> None:
        """Gives a claim back. Only for an attempt that provably never began. Repeating it is
        harmless.
        """
        self._ask("POST", _path(token, "/release"), done, None, lease)


def is_claim(claimed):
    """Reports whether an answer to a claim is a whole one."""
    if claimed.get("outcome") == "granted":
        return is_text(claimed.get("lease")) and is_number(claimed.get("fence")) and claimed["fence"] > 0
    return claimed.get("outcome") == "replay" and _is_recorded(claimed.get("response"))


def _is_recorded(response):
    """Reports whether a recorded answer is a whole one."""
    base64.b64decode(response.get("body_base64") or "", validate=True)
    return is_number(response["status"]) and isinstance(response.get("headers") or {}, dict)


def is_extended(answer):
    """Reports whether an answer confirms a heartbeat."""
    return is_text(answer.get("lease_until"))


def recorded(status, headers, body, not_kept=False):
    """An answer as it is sent to be recorded."""
    response = Response(None if not_kept else body, status, headers)
    written = base64.b64encode(response.body).decode()
    return {"status": status, "headers": response.headers, "body_base64": written, "body_not_kept": not_kept}


def _path(token, verb=""):
    return f"/token/{quoted(token)}{verb}"
