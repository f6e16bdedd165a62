"""The client: how a request is made. What can be asked for is in the file of each subject."""

from __future__ import annotations

import urllib.parse
from typing import Any, Callable, Dict, Mapping, Optional

from .ask import done, written
from .counters import Counters
from .errors import Unavailable, UnknownOutcome, parsed, problem
from .exchange import Connections
from .ids import Ids
from .limits import Limits
from .locks import Locks
from .operations import Operations
from .tokens import Tokens
from .workerid import Workers


class Client(Counters, Ids, Limits, Locks, Operations, Tokens, Workers):
    """Asks one service. It may be used by several threads, and after a fork: each request has a
    connection to itself, which is then kept for the next, and is sent once.

    timeout is how many seconds one request may take; key is an API key, for a service that asks for
    one: use https then. A ValueError is a call that was not sent, such as one with a name that
    cannot be one; other errors are those of this package.
    """

    def __init__(self, url: str, timeout: float = 10.0, key: str = "") -> None:
        self._url = urllib.parse.urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname or self._url.port == 0:
            raise ValueError("the service's URL is http://host:port or https://host")
        if not timeout > 0:
            raise ValueError("the timeout is more than 0 seconds")
        _printable("the API key", key)
        self._timeout, self._key = timeout, key
        self._connections = Connections(self._url)

    def close(self) -> None:
        """Ends the connections that are kept. A call under way goes on, and a later one opens a
        connection, which is not kept.
        """
        self._connections.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        whole: Callable[[Dict[str, Any]], Any],
        message: Optional[Mapping[str, Any]] = None,
        lease: Optional[str] = None,
        timeout: Optional[float] = None,
        repeat: str = "",
        longer: float = 0.0,
    ) -> Dict[str, Any]:
        """Sends one request, once, and returns the JSON of its answer, {} where it has none.

        whole tells an answer of the service from that of a server in between with the same status.
        repeat is the Idempotency-Key of what the service does once for it. longer is for how many
        seconds the service may wait itself. A GET changes nothing: where no answer comes to it,
        nothing was done.
        """
        headers = self._headers(lease, repeat)
        body = b"" if message is None else written(message)
        try:
            status, told, text = self._connections.send(method, self._url.path.rstrip("/") + path, headers, body, timeout or self._timeout + longer)
            if status not in (200, 201, 204):
                secrets = self._secrets(path, lease)
                raise problem(status, told.get("Content-Type", ""), told.get("Retry-After"), text, secrets)
            answer = {} if status == 204 else parsed(text)
            if answer is None or (whole is done) != (status == 204) or not _holds(whole, answer):
                raise UnknownOutcome("unknown-outcome", "the answer cannot be read", status)
            return answer
        except UnknownOutcome as error:
            if method != "GET":
                raise
            code = "unavailable" if error.code == "unknown-outcome" else error.code
            raise Unavailable(code, error.detail, error.status, error.retry_after, error.facts) from None

    def _secrets(self, path, lease):
        """What no error may hold: the longest first, which can have another one in it."""
        token = path.split("/")[2] if path.startswith("/token/") else ""
        return sorted({self._key, lease or "", token, urllib.parse.unquote(token)}, key=len, reverse=True)

    def _headers(self, lease, repeat):
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        if lease is not None:
            _printable("the lease", lease)
            headers["Lease-Token"] = lease  # never in the path: paths are logged
        if repeat:
            _printable("the request id", repeat, first=" ")
            headers["Idempotency-Key"] = '"' + repeat.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return headers


def _holds(whole, answer):
    """Reports whether an answer is a whole one. One with members of other types is none."""
    try:
        return whole(answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False


def _printable(what, text, first="!"):
    """Refuses what no header can hold, and says nothing of it, since it is a secret."""
    if any(not first <= one <= "~" for one in text):
        raise ValueError(f"{what} has characters that none has")
