"""Work that is done once: the claim, its heartbeat, and the record of the answer."""

from __future__ import annotations

import base64
import contextlib
import inspect
import secrets
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from . import clocks
from .ask import utf8
from .client import Client
from .errors import Error, Lost, NotRecorded, Unavailable, UnknownOutcome, WorkError
from .response import Response, response_of


class NOT_BEGUN:
    """What a resolver returns if nothing had happened, and nothing can any more: the class
    itself.
    """


class Attempt:
    """What the work may know of its claim."""

    def __init__(self, fence: int, number: int) -> None:
        # larger than that of every attempt before it: give it to what must refuse an older attempt
        self.fence = fence
        self.number = number
        self.operation = ""  # of a key: the operation's name, by which it is settled
        self._released = False
        self._lost = threading.Event()
        self._told: Optional[Lost] = None  # what check raised
        # by both clocks; None under hold, where no one else can begin
        self._deadline = None

    def release(self) -> None:
        """Call this if the work provably had no effect, whether it then returns or raises: the
        claim is given back, and nothing is recorded.
        """
        self._released = True

    def check(self) -> None:
        """Call this before every effect: it raises Lost when the claim is another's, or may be."""
        if self._lost.is_set() or (self._deadline is not None and any(now >= end for now, end in zip(clocks.read(), self._deadline))):
            self._told = Lost("idempotency-superseded", "another attempt has the claim, or may have")
            raise self._told


def run_once(
    client: Client,
    token: Optional[str] = None,
    fingerprint: str = "",
    work: Optional[Callable[[Attempt], Any]] = None,
    lease: float = 30.0,
    policy: str = "hold",
    *,
    key: Optional[str] = None,
    scope: str = "",
    retention: Optional[float] = None,
    resolve: Optional[Callable[[str, int], Any]] = None,
) -> Tuple[Dict[str, Any], bool]:
    """Runs work(attempt) under a token or, with key, under the id that the work already has (see
    Client.claim_key), with token None. It returns (answer, replayed), where the answer is
    {"status", "headers", "body", "not_kept"}.

    work returns its result, or a Response for a status or headers of its own: bytes and str as they
    are, None as an empty body, anything else as JSON. If it raises, the operation may have
    happened: nothing is given back, the lease lapses, and then the token is in doubt, under
    takeover free for the next. If it provably had no effect, it calls attempt.release() before it
    raises: then the claim is given back.

    resolve(operation, fence) is asked when an earlier attempt is in doubt. It closes the operation
    at whatever keeps the effect, so that no attempt with this fence or a smaller one has an effect
    from then on, and returns NOT_BEGUN, upon which work runs, or the Response that the attempt gave
    or would have given. Anything else, such as None, and an error say that nothing is known.

    A TypeError for what JSON cannot write, such as a generator or a future, leaves the token in
    doubt too: nobody can tell that such work has ended. An async def or a function that yields is a
    TypeError before anything is sent: run it within a function, such as by asyncio.run. Other
    errors: those of Client.claim (the work did not run), what work raised, WorkError if that was an
    Error of another call, Lost (do not use what was done), NotRecorded.
    """
    if (token is None) == (key is None):
        raise TypeError("either a token or a key says which operation it is")
    if not isinstance(fingerprint, str) or not fingerprint:
        raise TypeError("the fingerprint is a str: see fingerprint()")
    utf8("the fingerprint", fingerprint)
    if key is not None:
        utf8("the key", key)
    elif retention is not None or scope:
        raise TypeError("retention and scope belong to a key: a token has those that it was issued with")
    if not callable(work) or any(is_later(part) for is_later in _LATER for part in (work, getattr(work, "__call__", None))):
        raise TypeError("the work is a function, no async def and none that yields: run those within one, such as by asyncio.run or list")
    subject = _ByToken(client, token) if key is None else _ByKey(client, key, scope, retention)
    claimed, claimed_at = _claim_or_resolve(client, subject, fingerprint, lease, policy, resolve)
    if claimed["outcome"] == "replay":
        response = claimed["response"]
        body = base64.b64decode(response.get("body_base64") or "")
        return _answer(response["status"], response.get("headers"), body, response.get("body_not_kept", False)), True
    proof = claimed["lease"]
    attempt = Attempt(claimed["fence"], claimed.get("attempt", 1))
    attempt.operation = claimed.get("operation", "")
    if policy == "takeover":
        attempt._deadline = clocks.after(claimed_at, lease)
    ended = threading.Event()
    beat = threading.Thread(target=_heartbeat, args=(subject, proof, attempt, lease, ended), daemon=True)
    try:
        beat.start()
    except RuntimeError:  # no thread can be had: nothing was begun
        _give_back(subject, proof)
        raise
    try:
        response = response_of(work(attempt))
    except BaseException as error:
        _stop(beat, ended)
        if attempt._released:
            _give_back(subject, proof)
        if isinstance(error, Error) and error is not attempt._told:
            raise WorkError(attempt.operation) from error
        raise
    _stop(beat, ended)
    answer = _answer(response.status, response.headers, response.body)
    if attempt._released:
        _give_back(subject, proof)
        return answer, False
    try:
        _record(subject, proof, answer)
    except Lost:
        raise
    except Error as error:
        raise NotRecorded(answer) from error
    return answer, False


# what a call of such a function returns has not run
_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class _ByToken:
    """The steps of a token."""

    def __init__(self, client, token):
        self._client, self._token = client, token

    def claim(self, *terms):
        return self._client.claim(self._token, *terms)

    def extend(self, lease, span, timeout):
        self._client.extend(self._token, lease, span, timeout)

    def complete(self, lease, *answer):
        self._client.complete(self._token, lease, *answer)

    def release(self, lease):
        self._client.release(self._token, lease)


class _ByKey:
    """The steps of a key. The claim tells the name that the others need: without it there is
    nothing to give back by, and the lease lapses.
    """

    def __init__(self, client, key, scope, retention):
        self._client, self._key, self._scope, self._retention = client, key, scope, retention
        self._operation = None

    def claim(self, fingerprint, lease, policy, lease_token):
        claimed = self._client.claim_key(self._key, fingerprint, lease, policy, lease_token, self._scope, self._retention)
        self._operation = claimed["operation"]
        return claimed

    def extend(self, lease, span, timeout):
        self._client.extend_operation(self._operation, lease, span, timeout)

    def complete(self, lease, *answer):
        self._client.complete_operation(self._operation, lease, *answer)

    def release(self, lease):
        if self._operation is not None:
            self._client.release_operation(self._operation, lease)


# what says of a claim whose answer was lost that it does not stand
_DECIDES = ("idempotency-in-progress", "idempotency-outcome-unknown", "idempotency-payload-mismatch", "idempotency-token-unknown")


def _claim_or_resolve(client, subject, fingerprint, lease, policy, resolve):
    """Claims, and again once the resolver has ended the doubt about an earlier attempt. It also
    returns the clocks before the claim was sent: from there one lease is what this process trusts
    its claim for.
    """
    claimed_at = clocks.read()
    try:
        return _claim(subject, fingerprint, lease, policy), claimed_at
    except Error as error:
        in_doubt = error.code == "idempotency-outcome-unknown" and error.operation
        if resolve is None or not in_doubt or not _resolved(client, error.operation, resolve):
            raise
    claimed_at = clocks.read()
    return _claim(subject, fingerprint, lease, policy), claimed_at


_QUESTION = 30.0  # seconds that a resolver has before another one may ask


def _resolved(client, operation, resolve):
    """Asks the resolver, and reports whether the doubt is over. What it raises is raised."""
    lease_token = secrets.token_urlsafe(16)
    try:
        begun = _settle(lambda: client.begin_resolving(operation, _QUESTION, lease_token))
    except Error as error:
        return error.code == "not-in-doubt"  # another one has asked
    proof, is_settled = begun["lease"], False
    try:
        said = resolve(operation, begun["fence"])
        if isinstance(said, Response):
            _settle(lambda: client.settle(operation, "completed", "", said.status, said.headers, said.body, proof))
            is_settled = True
        elif said is NOT_BEGUN:
            _settle(lambda: client.settle(operation, "not-begun", lease=proof))
            is_settled = True
    finally:
        if not is_settled:
            with contextlib.suppress(Error):  # else its lease ends
                client.end_resolving(operation, proof)
    return is_settled


def _claim(subject, fingerprint, lease, policy):
    """Claims a token. A claim that may stand, without any answer or where the wait for one was
    interrupted, is given back: nothing was begun.
    """
    lease_token = secrets.token_urlsafe(16)
    try:
        return _claim_again(subject, fingerprint, lease, policy, lease_token)
    except BaseException as error:
        if not isinstance(error, Error) or isinstance(error, UnknownOutcome):
            with contextlib.suppress(Error):  # else it is in doubt when the lease has lapsed
                subject.release(lease_token)
        raise


def _claim_again(subject, fingerprint, lease, policy, lease_token):
    """Claims a token, and asks again after a lost answer. From then on only an answer about the
    token itself counts: a refusal says nothing of the claim that went before.
    """
    unknown, wait = None, 0.1
    for _ in range(5):
        try:
            return subject.claim(fingerprint, lease, policy, lease_token)
        except Error as error:
            if error.code in _DECIDES or unknown is None and not isinstance(error, UnknownOutcome):
                raise
            unknown = unknown or error
        time.sleep(wait)
        wait *= 2
    raise unknown


def _record(subject, proof, answer):
    """Records an answer, without its body if that is too large: the token must not stay in doubt
    for that.
    """
    for not_kept in (False, True):
        try:
            return _settle(lambda: subject.complete(proof, answer["status"], answer["headers"], answer["body"], not_kept))
        except Error as error:
            if not_kept or error.status != 413:
                raise


def _answer(status, headers, body, not_kept=False):
    return {"status": status, "headers": headers or {}, "body": body, "not_kept": not_kept}


def _heartbeat(subject, proof, attempt, lease, ended):
    """Extends the lease every third of it. One that hangs makes room for the next."""
    while not ended.wait(lease / 3):
        sent = clocks.read()
        try:
            subject.extend(proof, lease, timeout=lease / 3)
        except Error as error:
            if isinstance(error, Lost) or error.code in ("idempotency-token-unknown", "operation-unknown"):
                attempt._lost.set()
                return
            continue  # the next one may get through; until then the deadline counts
        if attempt._deadline is not None:
            attempt._deadline = clocks.after(sent, lease)


def _stop(beat, ended):
    ended.set()
    beat.join()


def _give_back(subject, proof):
    with contextlib.suppress(Error):  # else the token is in doubt when its lease has lapsed
        _settle(lambda: subject.release(proof))


def _settle(call, tries=8):
    """Makes a call that is harmless to repeat until it is known what became of it, or it was tried
    often enough.
    """
    wait = 0.1
    for left in reversed(range(tries)):
        try:
            return call()
        except (Unavailable, UnknownOutcome):
            if left == 0:
                raise
        time.sleep(wait)
        wait = min(2 * wait, 2.0)
