"""The remote token protocol: one token, one start of the work, one answer.

https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md says what each answer and each lost
answer means; this is that page as code.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import inspect
import json
import secrets
import socket
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from .counters import Counters
from .errors import Error, Lost, TimedOut, Unavailable, UnknownOutcome, _claimed, _millis, _object, _problem, _recorded, _whole
from .ids import Ids
from .limits import Limits
from .operations import Operations


MOST = 16 << 20  # bytes of an answer that are read


class NotRecorded(Exception):
    """The work is done, but its answer may not be recorded. The cause says why; answer is what the
    work returned.
    """

    def __init__(self, answer: Dict[str, Any]) -> None:
        super().__init__("the work is done, but its answer may not be recorded")
        self.answer = answer


def fingerprint(*parts: str) -> str:
    """A digest of what makes a request the same: SHA-256 over the parts, each after its length."""
    digest = hashlib.sha256()
    for part in parts:
        part = part.encode()
        digest.update(b"%d:%s," % (len(part), part))
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


class Client(Counters, Ids, Limits, Operations):
    """Asks one service. It may be used by several threads: each request has a connection of its
    own, and is sent once. key is an API key, for a service that asks for one; use https then.
    """

    def __init__(self, url: str, timeout: float = 10.0, key: str = "") -> None:
        self._url = urllib.parse.urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError("the service's URL is http://host:port or https://host")
        if any(not "!" <= one <= "~" for one in key):
            raise ValueError("the API key has characters that no key has")
        self._timeout, self._key = timeout, key

    def claim(self, token: str, fingerprint: str, lease: float, policy: str = "hold", owner: str = "") -> Dict[str, Any]:
        """Looks at a token and takes it: {"outcome": "granted", "lease", "fence", …} or {"outcome":
        "replay", "response": {…}}.

        owner is a secret of 16 to 128 characters, new for each attempt: repeating the claim with
        the same one gets the same grant.
        """
        claimed = self._post(token, "claim", {"fingerprint": fingerprint, "lease_ms": _millis(lease), "policy": policy, "owner": owner})
        return _claimed(claimed)

    def issue(self, scope: str = "", ttl: Optional[float] = None) -> Dict[str, Any]:
        """Issues a token that may be claimed once within ttl seconds: {"token", "expires_at",
        "scope"}. After UnknownOutcome issue another: the lost one expires.
        """
        asked = {name: value for name, value in (("scope", scope), ("ttl_ms", None if ttl is None else _millis(ttl))) if value}
        issued = self.request("POST", "/token", asked)
        return _whole(issued, issued.get("token"))

    def status(self, token: str) -> Dict[str, Any]:
        """Reads the state of a token, and changes nothing."""
        shown = self.request("GET", f"/token/{urllib.parse.quote(token, safe='')}")
        return _whole(shown, shown.get("state"))

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
        self._done(token, "complete", _recorded(status, headers, body, not_kept), lease)

    def extend(self, token: str, lease: str, span: float, timeout: Optional[float] = None) -> None:
        """The heartbeat: the lease ends that many seconds from now. Repeating it is harmless."""
        extended = self._post(token, "extend", {"lease_ms": _millis(span)}, lease, timeout)
        _whole(extended, extended.get("lease_until"))

    def release(self, token: str, lease: str) -> None:
        """Gives a claim back. Only for an attempt that provably never began. Repeating it is
        harmless.
        """
        self._done(token, "release", None, lease)

    def _done(self, token, verb, message, lease):
        """Posts what the service answers without a body."""
        answer = self._post(token, verb, message, lease)
        _whole(answer, not answer)

    def _post(self, token, verb, message, lease=None, timeout=None):
        return self.request("POST", f"/token/{urllib.parse.quote(token, safe='')}/{verb}", message, lease, timeout)

    def request(
        self,
        method: str,
        path: str,
        message: Optional[Mapping[str, Any]] = None,
        lease: Optional[str] = None,
        timeout: Optional[float] = None,
        repeat: str = "",
    ) -> Dict[str, Any]:
        """Sends one request, once, and returns the JSON of its answer. repeat is the
        Idempotency-Key of one that the service does once for it. http.client follows no
        redirect and repeats nothing.
        """
        scheme = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = scheme(self._url.hostname, self._url.port, timeout=timeout or self._timeout)
        try:
            connection.connect()
        except OSError as error:  # refused, not resolved, not trusted: nothing was sent
            raise Unavailable("unavailable", f"no connection: {error}") from None
        try:
            body = b"" if message is None else json.dumps(message).encode()
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            if repeat:
                headers["Idempotency-Key"] = repeat
            if lease is not None:
                headers["Lease-Token"] = lease  # never in the path: paths are logged
            try:
                connection.request(method, self._url.path.rstrip("/") + path, body, headers)
            except ConnectionError:
                pass  # what refuses a large body unread has answered before it closed
            response = connection.getresponse()
            status, kind, wait, text = response.status, response.getheader("Content-Type", ""), response.getheader("Retry-After"), response.read(MOST)
        except socket.timeout:
            raise TimedOut("unknown-outcome", "no answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise UnknownOutcome("unknown-outcome", f"no answer: {type(error).__name__}") from None
        finally:
            connection.close()
        if status == 204:
            return {}
        if status in (200, 201):
            answer = _object(text)
            return _whole(answer, answer, status)
        raise _problem(status, kind, wait, text)


class Attempt:
    """What the work may know of its claim."""

    def __init__(self, fence: int, number: int) -> None:
        # larger than that of every attempt before it: give it to what must refuse an older attempt
        self.fence = fence
        self.number = number
        self.operation = ""  # of a key: the operation's name, by which it is settled
        # set it if the work provably had no effect: the claim is given back, and nothing is
        # recorded
        self.not_begun = False
        self._lost = threading.Event()
        # by time.monotonic(), which may stand still while the machine sleeps, and by time.time(),
        # which may be set; None under hold, where no one else can begin
        self._deadline = None

    def check(self) -> None:
        """Call this before every effect: it raises Lost when the claim is another's, or may be."""
        if self._lost.is_set() or (self._deadline is not None and any(now >= end for now, end in zip(_clocks(), self._deadline))):
            raise Lost("idempotency-superseded", "another attempt has the claim, or may have")


def _clocks():
    return time.monotonic(), time.time()


def _after(clocks, span):
    return tuple(clock + span for clock in clocks)


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
) -> Tuple[Dict[str, Any], bool]:
    """Runs work(attempt) under a token or, with key, under the id that the work already has (see
    Client.claim_key), with token None. It returns (answer, replayed), where the answer is
    {"status", "headers", "body", "not_kept"}.

    work returns (status, headers, body), or its result: bytes and str as they are, None as an empty
    body, anything else as JSON; what JSON cannot write is not kept. An async def is a TypeError,
    before anything is sent: run it within a function, such as by asyncio.run. If it raises, the
    operation may have happened: nothing is given back, the lease lapses, and then the token is in
    doubt, under takeover free for the next. Errors: those of Client.claim (the work did not run),
    what work raised, Lost (do not use what was done), NotRecorded.
    """
    if (token is None) == (key is None):
        raise TypeError("either a token or a key says which operation it is")
    if not isinstance(fingerprint, str) or not fingerprint:
        raise TypeError("the fingerprint is a str: see fingerprint()")
    if not callable(work) or inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(getattr(work, "__call__", None)):
        raise TypeError("the work is a function, and no async def: run that within one, such as by asyncio.run")
    # before the claim is sent: from here one lease is what this process trusts its claim for
    claimed_at = _clocks()
    subject = _ByToken(client, token) if key is None else _ByKey(client, key, scope, retention)
    claimed = _claim(subject, fingerprint, lease, policy)
    if claimed["outcome"] == "replay":
        response = claimed["response"]
        body = base64.b64decode(response.get("body_base64") or "")
        return _answer(response["status"], response.get("headers"), body, response.get("body_not_kept", False)), True
    proof = claimed["lease"]
    attempt = Attempt(claimed["fence"], claimed.get("attempt", 1))
    attempt.operation = claimed.get("operation", "")
    if policy == "takeover":
        attempt._deadline = _after(claimed_at, lease)
    ended = threading.Event()
    beat = threading.Thread(target=_heartbeat, args=(subject, proof, attempt, lease, ended), daemon=True)
    beat.start()
    try:
        result = work(attempt)
        if inspect.isawaitable(result):
            raise TypeError("the work has returned an awaitable, which may run or not: it is in doubt")
    except BaseException:
        _stop(beat, ended)
        if attempt.not_begun:
            _give_back(subject, proof)
        raise
    _stop(beat, ended)
    answer = _result(result)
    if attempt.not_begun:
        _give_back(subject, proof)
        return answer, False
    try:
        _record(subject, proof, answer)
    except Lost:
        raise
    except Error as error:
        raise NotRecorded(answer) from error
    return answer, False


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

    def claim(self, fingerprint, lease, policy, owner):
        claimed = self._client.claim_key(self._key, fingerprint, lease, policy, owner, self._scope, self._retention)
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


def _claim(subject, fingerprint, lease, policy):
    """Claims a token, and asks again after a lost answer. From then on only an answer about the
    token itself counts: a refusal says nothing of the claim that went before. If none comes, the
    claim is given back: nothing was begun.
    """
    owner, unknown, wait = secrets.token_urlsafe(16), None, 0.1
    for _ in range(5):
        try:
            return subject.claim(fingerprint, lease, policy, owner)
        except Error as error:
            if error.code in _DECIDES or unknown is None and not isinstance(error, UnknownOutcome):
                raise
            unknown = unknown or error
        time.sleep(wait)
        wait *= 2
    try:
        subject.release(owner)
    except Error:
        pass  # the token is in doubt when the lease has lapsed, if the claim was made
    raise unknown


def _record(subject, proof, answer):
    """Records an answer, without its body if that is too large: the token must not stay in doubt
    for that.
    """
    for not_kept in (True,) if answer.get("not_kept") else (False, True):
        try:
            return _settle(lambda: subject.complete(proof, answer["status"], answer["headers"], answer["body"], not_kept))
        except Error as error:
            if not_kept or error.status != 413:
                raise


def _result(result):
    """The answer that a result of the work is. It raises nothing: the work is done."""
    is_answer = isinstance(result, tuple) and len(result) == 3 and isinstance(result[0], int) and isinstance(result[1] or {}, Mapping)
    status, headers, body = result if is_answer else (200, {}, result)
    headers = dict(headers or {})
    if body is None:
        return _answer(status, headers, b"")
    if isinstance(body, str):
        return _answer(status, headers, body.encode(errors="surrogatepass"))
    if isinstance(body, (bytes, bytearray, memoryview)):
        return _answer(status, headers, bytes(body))
    try:
        body = json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return _answer(status, headers, b"", not_kept=True)
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    return _answer(status, headers, body)


def _answer(status, headers, body, not_kept=False):
    return {"status": status, "headers": headers or {}, "body": body, "not_kept": not_kept}


def _heartbeat(subject, proof, attempt, lease, ended):
    """Extends the lease every third of it. One that hangs makes room for the next."""
    while not ended.wait(lease / 3):
        sent = _clocks()
        try:
            subject.extend(proof, lease, timeout=lease / 3)
        except Error as error:
            if isinstance(error, Lost) or error.code == "idempotency-token-unknown":
                attempt._lost.set()
                return
            continue  # the next one may get through; until then the deadline counts
        if attempt._deadline is not None:
            attempt._deadline = _after(sent, lease)


def _stop(beat, ended):
    ended.set()
    beat.join()


def _give_back(subject, proof):
    try:
        _settle(lambda: subject.release(proof))
    except Error:
        pass  # the token is in doubt when its lease has lapsed


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
