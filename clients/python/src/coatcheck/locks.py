"""Locks: a lease that is renewed, and a holder that is told when it may not count on it."""

from __future__ import annotations

import os
import queue
import secrets
import threading
import weakref
from types import TracebackType
from typing import Any, Dict, Optional, Type

from . import clocks
from .ask import Asking, done, given, is_number, is_text, millis, named
from .errors import Error, Lost, UnknownOutcome

_RELEASE = 2.0  # seconds that a release may take


class Locks(Asking):
    """The calls of Client about locks."""

    def acquire_lock(
        self,
        name: str,
        ttl: float = 30.0,
        wait: float = 0.0,
        *,
        mode: str = "",
        permits: Optional[int] = None,
        take: Optional[int] = None,
        owner: str = "",
    ) -> Lock:
        """Acquires a lock and renews it until release. ttl and wait (60 at most) are in seconds;
        mode is "exclusive", "shared" or "permits". One that is not free in time is an Error (the
        code is lock-held). Where no answer came, the lock is given back if the service takes that
        in time, else it ends with its TTL.
        """
        if not 0 <= wait <= 60:
            raise ValueError("wait: 0 to 60 seconds")
        path, place = named("/lock", name), secrets.token_urlsafe(16)
        asked = given(ttl_ms=millis(ttl), wait_ms=millis(wait), mode=mode, permits=permits, take=take, owner=owner)
        sent = clocks.read()
        try:
            granted = self._ask("POST", path, _is_grant, asked, place, longer=wait)
        except BaseException as error:
            # the place in the queue, or the lock, may be there
            if not isinstance(error, Error) or isinstance(error, UnknownOutcome) or wait and error.code == "lock-held":
                _leave(self, path, place)
            raise
        return Lock(self, path, granted, asked["ttl_ms"], sent)

    def lock(self, name: str) -> Dict[str, Any]:
        """Holders and waiters of a lock, as the service tells them."""
        return self._ask("GET", named("/lock", name), lambda shown: isinstance(shown.get("holders"), list))


def _is_grant(granted):
    return is_text(granted.get("lease")) and is_number(granted.get("fence")) and granted["fence"] > 0


def _leave(client, path, proof):
    try:
        client._ask("DELETE", path, done, None, proof, _RELEASE)
    except Error:
        pass  # it ends by itself


class Lock:
    """A lock that is held and renewed, for as long as check does not raise. It may be used by
    several threads.

    As a context manager it is given back at the end; Lost is raised then if it was another's before
    that, unless the block has raised. One that is dropped is not renewed any more, and ends with
    its TTL.
    """

    def __init__(self, client: Asking, path: str, granted: Dict[str, Any], ttl_ms: int, sent: Any) -> None:
        self.name: str = granted.get("name", "")
        self.fence: int = granted["fence"]  # larger for every later grant: give it to what can refuse an older one
        self._client, self._path, self._proof = client, path, granted["lease"]
        self._ttl_ms, self._ttl = ttl_ms, ttl_ms / 1000
        self._process = os.getpid()
        self._guard, self._releasing = threading.Lock(), threading.Lock()
        self._trusted = sent  # when the last confirmed request was sent
        self._lost: Optional[Lost] = None  # why it may not be counted on any more
        self._outcome: Optional[list] = None  # of the release: what it raised
        # the thread holds no lock that all others have dropped. A queue, since a finalizer may run
        # in the middle of anything, and the put of this one waits for no lock
        self._stop: queue.SimpleQueue = queue.SimpleQueue()
        weakref.finalize(self, self._stop.put, None).atexit = False
        self._keeper = threading.Thread(target=_keep, args=(weakref.ref(self), self._stop, self._ttl / 3), daemon=True)
        self._begin(sent)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if os.getpid() != self._process:
            return  # a fork gives back nothing
        try:
            self.release()
        except Lost:
            if kind is None:
                raise
        except Error:
            pass  # it ends with its TTL

    def _begin(self, sent):
        """Renews once if the grant was waited for: its lease began at an unknown moment."""
        try:
            if clocks.passed(sent) > self._ttl / 4:
                self._trusted = clocks.read()
                self._renew()
            self.check()
            self._keeper.start()
        except BaseException:
            _leave(self._client, self._path, self._proof)
            raise

    @property
    def validity(self) -> float:
        """For how many seconds the lock may be counted on if no renewal is confirmed, by monotonic
        and wall time.
        """
        if self._lost is not None or os.getpid() != self._process:
            return 0.0
        margin = min(self._ttl / 10, 1.0)
        return max(0.0, self._ttl - margin - clocks.passed(self._trusted))

    def check(self) -> None:
        """Call it before each use: it raises Lost when the lock may be another's."""
        if os.getpid() != self._process:
            raise Lost("lease-lost", "this process is a fork of the one that holds the lock")
        if self._lost is None and self.validity == 0:
            self._lose(Lost("lease-lost", "no renewal was confirmed before the lease could end"))
        if self._lost is not None:
            raise Lost(self._lost.code, self._lost.detail, self._lost.status)

    def release(self) -> None:
        """Gives the lock back; Lost if it had ended by then. After another error it ends with its
        TTL. Releasing again sends nothing and does the same.
        """
        if os.getpid() != self._process:
            raise Lost("lease-lost", "this process is a fork of the one that holds the lock")
        self._lose(Lost("released", "the lock was given back"))
        with self._releasing:
            if self._outcome is None:
                self._outcome = []
                try:
                    self._client._ask("DELETE", self._path, done, None, self._proof, _RELEASE)
                except Error as error:
                    self._outcome.append(error)
        for error in self._outcome:
            raise error.with_traceback(None)

    def _lose(self, why):
        """Ends the trust and the renewals. The first reason stays."""
        with self._guard:
            self._lost = self._lost or why
        self._stop.put(None)

    def _renew(self):
        """Renews. What is confirmed after the deadline revives nothing."""
        sent = clocks.read()
        renewed = lambda answer: is_text(answer.get("expires_at"))  # noqa: E731
        self._client._ask("PUT", self._path, renewed, {"ttl_ms": self._ttl_ms}, self._proof, self._ttl / 3)
        self.check()
        self._trusted = sent

    def _beat(self):
        """Renews, and returns how many seconds to wait for the next time, None = never. It is
        sooner after a failure. A renewal that hangs makes room for the next.
        """
        try:
            self.check()
            self._renew()
        except Lost as error:
            self._lose(error)
            return None
        except Error:
            return self._ttl / 12  # the next one may get through; until then the deadline counts
        return self._ttl / 3


def _keep(held, stop, wait):
    """Renews a lock, a weak reference, until it is stopped or dropped."""
    while wait is not None:
        try:
            return stop.get(timeout=wait)
        except queue.Empty:
            pass
        lock = held()
        wait = None if lock is None else lock._beat()
        del lock
