"""What a call fails with, and how an answer is read."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Mapping, Optional


class Error(Exception):
    """What a call failed with. No text of it holds a token or a lease."""

    def __init__(
        self, code: str, detail: str, status: Optional[int] = None, retry_after: Optional[int] = None, facts: Optional[Mapping[str, Any]] = None
    ) -> None:
        super().__init__(f"{code}: {detail}")
        # of docs/remote.md; "unavailable" and "unknown-outcome" where the service itself did not
        # say one
        self.code = code
        self.status = status  # of the HTTP answer; None = none came
        self.retry_after = retry_after  # seconds; None = not known
        self.facts = dict(facts or {})  # the other members of the service's problem

    @property
    def field(self) -> Optional[str]:
        """The field of the request that the service refuses, if it names one."""
        return self.facts.get("field")


class Unavailable(Error):
    """Nothing was done: no connection came about, or the service said that it cannot now. Trying
    later is harmless.
    """


class UnknownOutcome(Error):
    """The request may or may not have been done: it was sent, and no answer of the service itself
    came back.
    """


class TimedOut(UnknownOutcome):
    """No answer came in time. As every UnknownOutcome it may have been done."""


class Lost(Error):
    """What was held is another's, or no one's: stop, and do not use what was done."""


def _whole(answer, whole, status=200):
    """The answer, if it is the service's own: a server in between may answer with the same
    status.
    """
    if not whole:
        raise UnknownOutcome("unknown-outcome", "the answer cannot be read", status)
    return answer


def _claimed(claimed):
    """The answer to a claim, if it is whole."""
    granted = claimed.get("outcome") == "granted" and claimed.get("lease") and claimed.get("fence")
    return _whole(claimed, granted or claimed.get("outcome") == "replay" and isinstance(claimed.get("response"), dict))


def _recorded(status, headers, body, not_kept):
    """An answer as the service records it."""
    written = "" if not_kept else base64.b64encode(body).decode()
    return {"status": status, "headers": dict(headers or {}), "body_base64": written, "body_not_kept": not_kept}


def _millis(seconds):
    return math.ceil(seconds * 1000)


def _object(text):
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _problem(status, kind, wait, text):
    """The error that an answer is. Only the service's own word says that nothing was done where the
    status is 500 or more.
    """
    retry_after = int(wait) if wait and wait.isdecimal() else None
    problem = _object(text) if kind.split(";")[0].strip() == "application/problem+json" and status >= 400 else None
    if problem is None or not isinstance(problem.get("code"), str):
        kind = Error if 400 <= status < 500 else UnknownOutcome
        return kind("refused" if kind is Error else "unknown-outcome", f"status {status} from something that is not the service", status, retry_after)
    code, detail = problem["code"], str(problem.get("detail") or problem.get("title") or "")
    kind = {
        "idempotency-superseded": Lost,
        "lease-lost": Lost,
        "store-unavailable": Unavailable,
        "store-unsuitable": Error,  # nothing was done, and asking again does not help
        "layout-used-up": Error,
        "pool-exhausted": Unavailable,
        "pool-quarantined": Unavailable,
        "too-many-requests": Unavailable,
        "overloaded": Unavailable,
        "limit-reached": Unavailable,
        "lock-held": Unavailable,
    }.get(code, Error if status < 500 else UnknownOutcome)
    return kind(code, detail, status, retry_after, problem)
