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
import math
import secrets
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, Mapping, Optional, Tuple


MOST = 16 << 20  # bytes of an answer that are read


class Error(Exception):
    """What a call failed with. No text of it holds a token or a lease."""

    def __init__(self, code: str, detail: str, status: Optional[int] = None, retry_after: Optional[int] = None) -> None:
        super().__init__(f"{code}: {detail}")
        # of docs/remote.md; "unavailable" and "unknown-outcome" where the service itself did not
        # say one
        self.code = code
        self.status = status  # of the HTTP answer; None = none came
        self.retry_after = retry_after  # seconds; None = not known


class Unavailable(Error):
    """Nothing was done: no connection came about, or the service said that it cannot now. Trying
    later is harmless.
    """


class UnknownOutcome(Error):
    """The request may or may not have been done: it was sent, and no answer of the service itself
    came back.
    """


class Lost(Error):
    """What was held is another's, or no one's: stop, and do not use what was done."""


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


class Client:
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
        granted = claimed.get("outcome") == "granted" and claimed.get("lease") and claimed.get("fence")
        return _whole(claimed, granted or claimed.get("outcome") == "replay" and isinstance(claimed.get("response"), dict))

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
        answer = {"status": status, "headers": dict(headers or {}), "body_base64": "" if not_kept else base64.b64encode(body).decode(), "body_not_kept": not_kept}
        self._done(token, "complete", answer, lease)

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
        self, method: str, path: str, message: Optional[Mapping[str, Any]] = None, lease: Optional[str] = None, timeout: Optional[float] = None
    ) -> Dict[str, Any]:
        """Sends one request, once, and returns the JSON of its answer. http.client follows no
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
            if lease is not None:
                headers["Lease-Token"] = lease  # never in the path: paths are logged
            try:
                connection.request(method, self._url.path.rstrip("/") + path, body, headers)
            except ConnectionError:
                pass  # what refuses a large body unread has answered before it closed
            response = connection.getresponse()
            status, kind, wait, text = response.status, response.getheader("Content-Type", ""), response.getheader("Retry-After"), response.read(MOST)
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


def _whole(answer, whole, status=200):
    """The answer, if it is the service's own: a server in between may answer with the same
    status.
    """
    if not whole:
        raise UnknownOutcome("unknown-outcome", "the answer cannot be read", status)
    return answer


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
    }.get(code, Error if status < 500 else UnknownOutcome)
    return kind(code, detail, status, retry_after)


class Attempt:
    """What the work may know of its claim."""

    def __init__(self, fence: int, number: int) -> None:
        # larger than that of every attempt before it: give it to what must refuse an older attempt
        self.fence = fence
        self.number = number
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
    token: str,
    fingerprint: str,
    work: Callable[[Attempt], Any],
    lease: float = 30.0,
    policy: str = "hold",
) -> Tuple[Dict[str, Any], bool]:
    """Runs work(attempt) under a token. It returns (answer, replayed), where the answer is
    {"status", "headers", "body", "not_kept"}.

    work returns (status, headers, body), or its result: bytes and str as they are, None as an empty
    body, anything else as JSON; what JSON cannot write is not kept. An async def is a TypeError,
    before anything is sent: run it within a function, such as by asyncio.run. If it raises, the
    operation may have happened: nothing is given back, the lease lapses, and then the token is in
    doubt, under takeover free for the next. Errors: those of Client.claim (the work did not run),
    what work raised, Lost (do not use what was done), NotRecorded.
    """
    if not isinstance(fingerprint, str) or not fingerprint:
        raise TypeError("the fingerprint is a str: see fingerprint()")
    if not callable(work) or inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(getattr(work, "__call__", None)):
        raise TypeError("the work is a function, and no async def: run that within one, such as by asyncio.run")
    # before the claim is sent: from here one lease is what this process trusts its claim for
    claimed_at = _clocks()
    claimed = _claim(client, token, fingerprint, lease, policy)
    if claimed["outcome"] == "replay":
        response = claimed["response"]
        body = base64.b64decode(response.get("body_base64") or "")
        return _answer(response["status"], response.get("headers"), body, response.get("body_not_kept", False)), True
    proof = claimed["lease"]
    attempt = Attempt(claimed["fence"], claimed.get("attempt", 1))
    if policy == "takeover":
        attempt._deadline = _after(claimed_at, lease)
    ended = threading.Event()
    beat = threading.Thread(target=_heartbeat, args=(client, token, proof, attempt, lease, ended), daemon=True)
    beat.start()
    try:
        result = work(attempt)
        if inspect.isawaitable(result):
            raise TypeError("the work has returned an awaitable, which may run or not: it is in doubt")
    except BaseException:
        _stop(beat, ended)
        if attempt.not_begun:
            _give_back(client, token, proof)
        raise
    _stop(beat, ended)
    answer = _result(result)
    if attempt.not_begun:
        _give_back(client, token, proof)
        return answer, False
    try:
        _record(client, token, proof, answer)
    except Lost:
        raise
    except Error as error:
        raise NotRecorded(answer) from error
    return answer, False


# what says of a claim whose answer was lost that it does not stand
_DECIDES = ("idempotency-in-progress", "idempotency-outcome-unknown", "idempotency-payload-mismatch", "idempotency-token-unknown")


def _claim(client, token, fingerprint, lease, policy):
    """Claims a token, and asks again after a lost answer. From then on only an answer about the
    token itself counts: a refusal says nothing of the claim that went before. If none comes, the
    claim is given back: nothing was begun.
    """
    owner, unknown, wait = secrets.token_urlsafe(16), None, 0.1
    for _ in range(5):
        try:
            return client.claim(token, fingerprint, lease, policy, owner)
        except Error as error:
            if error.code in _DECIDES or unknown is None and not isinstance(error, UnknownOutcome):
                raise
            unknown = unknown or error
        time.sleep(wait)
        wait *= 2
    try:
        client.release(token, owner)
    except Error:
        pass  # the token is in doubt when the lease has lapsed, if the claim was made
    raise unknown


def _record(client, token, proof, answer):
    """Records an answer, without its body if that is too large: the token must not stay in doubt
    for that.
    """
    for not_kept in (True,) if answer.get("not_kept") else (False, True):
        try:
            return _settle(lambda: client.complete(token, proof, answer["status"], answer["headers"], answer["body"], not_kept))
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


def _heartbeat(client, token, proof, attempt, lease, ended):
    """Extends the lease every third of it. One that hangs makes room for the next."""
    while not ended.wait(lease / 3):
        sent = _clocks()
        try:
            client.extend(token, proof, lease, timeout=lease / 3)
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


def _give_back(client, token, proof):
    try:
        _settle(lambda: client.release(token, proof))
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
