"""What a call fails with, and which failure an answer is."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Mapping, Optional

from .ask import is_number


class Error(Exception):
    """What a call failed with. No text of it holds an API key, a token or a lease, nor characters
    that a terminal does not print, whatever the service has answered.
    """

    def __init__(
        self, code: str, detail: str, status: Optional[int] = None, retry_after: Optional[float] = None, facts: Optional[Mapping[str, Any]] = None
    ) -> None:
        super().__init__(f"{code}: {detail}")
        # of docs/remote.md; "unavailable", "refused" and "unknown-outcome" where the service itself
        # did not say one
        self.code = code
        self.detail = detail
        self.status = status  # of the HTTP answer; None = none came
        self.retry_after = retry_after  # seconds; None = not known
        self.facts = dict(facts or {})  # the other members of the service's problem

    @property
    def field(self) -> Optional[str]:
        """The part of the request that is wrong, if the service names one."""
        return self.facts.get("field")

    @property
    def operation(self) -> Optional[str]:
        """The name of an operation in doubt, for Client.settle."""
        return self.facts.get("operation")


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


class WorkError(Exception):
    """The work raised an Error of another call, which is the cause. That says nothing of this
    operation, which may have happened; operation is its name, "" for a token.
    """

    def __init__(self, operation: str) -> None:
        super().__init__("the work was begun, and ended with the error of another call")
        self.operation = operation


class NotRecorded(Exception):
    """The work is done, but its answer may not be recorded. The cause says why; answer is what the
    work returned.
    """

    def __init__(self, answer: Dict[str, Any]) -> None:
        super().__init__("the work is done, but its answer may not be recorded")
        self.answer = answer


def parsed(text):
    """The object of a JSON text; None for anything else."""
    try:
        value = json.loads(text, parse_constant=int)  # NaN is a ValueError
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# the codes whose class the status does not tell
_kinds = {
    "idempotency-superseded": Lost,
    "lease-lost": Lost,
    "store-unavailable": Unavailable,
    "upstream-unavailable": Unavailable,
    "pool-exhausted": Unavailable,
    "pool-quarantined": Unavailable,
    "too-many-requests": Unavailable,
    "overloaded": Unavailable,
    "store-unsuitable": Error,  # nothing was done, and asking again does not help
    "store-newer": Error,
    "layout-used-up": Error,
}


_longest = 500  # characters of a text of the service
_year = 365 * 24 * 3600  # the longest wait


def problem(status, media, wait, text, secrets):
    """The error that an answer to a request with these secrets is. Only the service's own word says
    that nothing was done.
    """
    retry_after = min(int(wait), _year) if re.fullmatch("[0-9]{1,18}", wait or "") else None
    told = parsed(text) if media.split(";")[0].strip() == "application/problem+json" and status >= 400 else None
    if told is None or not _is_problem(told):
        return _foreign(status, retry_after)
    facts = _plain(told, secrets)
    code, detail = facts["code"], facts.get("detail") or facts.get("title") or ""
    if code != told["code"]:
        return _foreign(status, retry_after)
    if code == "limit-reached" and is_number(facts.get("retry_after_ms")) and 0 < facts["retry_after_ms"] <= _year * 1000:
        retry_after = facts["retry_after_ms"] / 1000
    kind = _kinds.get(code, Error if 400 <= status < 500 else UnknownOutcome)
    return kind(code, detail, status, retry_after, facts)


def _is_problem(told):
    texts = all(isinstance(told.get(name, ""), str) for name in ("code", "title", "detail", "field", "operation"))
    return texts and re.fullmatch("[a-z0-9-]{1,64}", told.get("code", ""))


def _plain(value, secrets):
    """A value of JSON with its texts fit for an error. Characters that are not printed go first: a
    secret with one in it would stay whole otherwise.
    """
    if isinstance(value, dict):
        return {_plain(name, secrets): _plain(one, secrets) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, secrets) for one in value]
    if not isinstance(value, str):
        return value
    text = "".join(one for one in value if one.isprintable() and one != "\ufffd")
    for secret in secrets:
        if len(secret) >= 8:  # what is shorter is no secret, and may be part of a word
            text = text.replace(secret, "…")
    return text if len(text) <= _longest else text[:_longest] + "…"


def _foreign(status, retry_after):
    """The error that an answer of another server is. It may have passed the request on, whatever
    its status, unless it says that the request is too large for it.
    """
    kind, code = (Error, "refused") if status == 413 else (UnknownOutcome, "unknown-outcome")
    return kind(code, f"status {status} from something that is not the service", status, retry_after)
