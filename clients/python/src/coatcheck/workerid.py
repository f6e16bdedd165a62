"""Leases a worker id, and keeps it, so that a generator can stamp ids that no other process stamps.

https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md says the five rules that every such
client follows; this is that page as code.
"""

from __future__ import annotations

import calendar
import os
import queue
import re
import threading
import time
import weakref
from types import TracebackType
from typing import List, Optional, Type, Union

from .ask import Asking, done, given, is_text, millis, named
from .errors import Error, Lost
from .snowflake import Generator, layout_of


class Workers(Asking):
    """The call of Client about worker ids."""

    def hold_worker(
        self,
        pool: str,
        identity: str = "",
        ttl: Optional[float] = None,
        layout: Optional[str] = None,
        epoch: Optional[str] = None,
        datacenter: Optional[int] = None,
    ) -> WorkerId:
        """Leases a worker id of a pool, and renews it until release: see WorkerId. A pool's ttl (in
        seconds), layout, epoch and datacenter are fixed by its first grant.
        """
        return WorkerId(self, pool, identity, ttl, layout, epoch, datacenter)


class NoLease(Exception):
    """Nothing may be stamped any more with this worker id. The text says why. Lease another."""


class WorkerId:
    """One lease of a worker id, from its grant to its end. It may be used by several threads.

    As a context manager it is given back at the end. One that is dropped is not renewed any more,
    and ends with its window.

    Client.hold_worker makes one, or the constructor, with a URL or a client (which has timeout and
    key then). It leases in one request; its errors are those of Client: Unavailable (nothing was
    done; retry_after says when to ask again), UnknownOutcome (a worker id is no one's until its TTL
    has passed: lease another), Error (asking again does not help, such as another layout).
    """

    def __init__(
        self,
        url: Union[str, Asking],
        pool: str,
        identity: str = "",
        ttl: Optional[float] = None,
        layout: Optional[str] = None,
        epoch: Optional[str] = None,
        datacenter: Optional[int] = None,
        timeout: float = 10.0,
        key: str = "",
    ) -> None:
        self._client = _client(url, timeout, key)
        asked = given(identity=identity, ttl_ms=millis(ttl), layout=layout, epoch=epoch, datacenter=datacenter)
        pool_path = named("/worker", pool)
        # before the request is sent: from here one TTL is what is trusted
        sent, sent_wall = time.monotonic(), time.time()
        lease = self._client._ask("POST", pool_path, self._take, asked)
        answered = time.monotonic()
        self._path = f"{pool_path}/{self.worker_id}"
        # never ahead: the service read its clock before this moment
        self._anchor = (_millis(lease["server_time"]), answered)
        self._trusted = (sent, sent_wall)

        self._process = os.getpid()
        self._lock = threading.Lock()
        self._releasing = threading.Lock()
        self._outcome: Optional[list] = None  # of the release: what it raised
        self._over = None  # why nothing may be stamped any more
        self._ended = threading.Event()
        # the thread holds no lease that all others have dropped. A queue, since a finalizer may run
        # in the middle of anything, and the put of this one waits for no lock
        self._stop = queue.SimpleQueue()
        weakref.finalize(self, self._stop.put, None).atexit = False
        self._keeper = threading.Thread(target=_keep, args=(weakref.ref(self), self._stop, self._renew_every), daemon=True)
        self._keeper.start()

    def __enter__(self) -> WorkerId:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        """Releases, unless this is a fork. An error of that changes nothing for the caller: the
        lease ends with its window.
        """
        try:
            self.release()
        except (Error, NoLease):
            pass

    def _take(self, lease):
        """Reports whether what was granted can be read, and reads it."""
        try:
            self._read_grant(lease)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return False
        return True

    def _read_grant(self, lease):
        """Reads what was granted. What goes back as proof stays as the service wrote it."""
        self.worker_id, self.datacenter, self.fence = int(lease["worker_id"]), int(lease["datacenter"]), int(lease["fence"])
        self.not_before, self.not_after = _millis(lease["not_before"]), _millis(lease["not_after"])
        self.ttl, self._renew_every = lease["ttl_ms"] / 1000, lease["renew_every_ms"] / 1000
        self._token = lease["lease"]
        self._proof = {name: lease.get(name, "") for name in ("ttl_ms", "not_after", "fence", "identity", "layout", "epoch", "datacenter")}
        self._ids = Generator(layout_of(lease["layout"]), _millis(lease["epoch"]), self.not_before, self.datacenter, self.worker_id)
        _millis(lease["server_time"])
        if not (is_text(self._token) and self.fence > 0 and lease["ttl_ms"] > 0 and self._renew_every > 0 and self.not_before < self.not_after):
            raise ValueError("not a whole grant")

    @property
    def margin(self) -> float:
        """How many seconds before the lease can end it counts as ended."""
        return min(self.ttl / 10, 1.0)

    def next_id(self) -> int:
        """Stamps an id, larger than the one before. It waits where the sequence of a unit of time
        is used up, and for a window that begins later. NoLease ends it.
        """
        while True:
            self._alone()
            with self._lock:
                made, wait = self._stamp(time.monotonic())
            if made is not None:
                return made
            self._ended.wait(wait)

    def next_ids(self, n: int) -> List[int]:
        """Stamps n ids, as next_id."""
        return [self.next_id() for _ in range(n)]

    def _stamp(self, now):
        """Returns an id, or None and how many seconds to wait for one. One reading of the clock
        decides and is what is stamped.
        """
        self._check(now)
        try:
            made, wait = self._ids.stamp(self._read(now), self.not_after)
        except OverflowError as error:
            self._end(str(error))
        return made, max(wait / 1000, 0.0001)

    def _alone(self):
        """A process that forks has the lease once, not twice: what runs in the child would stamp
        the same ids.
        """
        if os.getpid() != self._process:
            raise NoLease("this process is a fork of the one that leased: lease after forking")

    def _read(self, now):
        """The service's time in milliseconds: as it was told, carried on by the monotonic clock. No
        wall clock has a part in it.
        """
        time_then, then = self._anchor
        return time_then + (now - then) * 1000

    def _check(self, now):
        """Ends the lease when it can have ended, by monotonic or by wall time: the monotonic clock
        of Linux stands still while the machine sleeps.
        """
        sent, sent_wall = self._trusted
        if self._over is None and max(now - sent, time.time() - sent_wall) >= self.ttl - self.margin:
            self._over = "no renewal was confirmed before the lease could end"
        if self._over is not None:
            self._end(self._over)

    def _end(self, why):
        self._finish(why)
        raise NoLease(why)

    def _finish(self, why):
        """Ends the stamping and the renewals. The first reason stays."""
        self._over = self._over or why
        if not self._ended.is_set():
            self._ended.set()
            self._stop.put(None)

    def check(self) -> None:
        """Raises NoLease if nothing may be stamped any more."""
        self._alone()
        with self._lock:
            self._check(time.monotonic())

    def _renew(self):
        """Renews once, and returns how many seconds to wait for the next time, None = never. It is
        sooner after a failure. A renewal that hangs makes room for the next.
        """
        sent, sent_wall = time.monotonic(), time.time()
        try:
            self.check()
            renewed = self._client._ask("PUT", self._path, lambda answer: "not_after" in answer, self._proof, self._token, self.ttl / 3)
            with self._lock:
                self._confirm(renewed, sent, sent_wall, time.monotonic())
        except NoLease:
            return None
        except Lost as error:
            self._finish(str(error))
            return None
        except (Error, KeyError, TypeError, ValueError):
            return self.ttl / 12  # the next one may get through; until then the deadline counts
        return self._renew_every

    def _confirm(self, renewed, sent, sent_wall, answered):
        """Notes a renewal: the window's end, the trust, which counts from before it was sent, and
        the clock. A lease that has ended stays ended.
        """
        self._check(answered)
        not_after, told = _millis(renewed["not_after"]), _millis(renewed["server_time"])
        if renewed["worker_id"] != self.worker_id or not_after < self.not_after:
            raise ValueError("the answer is of another lease")
        # The service's time is now between what it told and that plus the time of the round trip.
        clock = min(max(self._read(answered), told), told + (answered - sent) * 1000)
        self._anchor, self._trusted, self.not_after = (clock, answered), (sent, sent_wall), not_after
        self._proof["not_after"] = renewed["not_after"]

    def release(self) -> None:
        """Stops stamping, then gives the worker id back, for a window that begins after the last
        id. On an error it ends with its window instead. Releasing again sends nothing and does the
        same.
        """
        self._alone()
        with self._lock:
            self._finish("the worker id was given back")
            used_until = self._ids.used_until
        with self._releasing:
            if self._outcome is None:
                self._outcome = []
                # a renewal may be under way; one that comes after the release is refused
                self._keeper.join(self.ttl / 3)
                try:
                    self._client._ask("DELETE", f"{self._path}?used_until={_moment(used_until)}", done, lease=self._token)
                except Error as error:
                    self._outcome.append(error)
        for error in self._outcome:
            raise error.with_traceback(None)


def _client(url, timeout, key):
    if isinstance(url, Asking):
        return url
    from .client import Client  # which has the calls of this file

    return Client(url, timeout, key)


def _keep(lease, stop, wait):
    """Renews a lease, a weak reference, as often as the service says, until it is stopped or
    dropped.
    """
    while wait is not None:
        try:
            return stop.get(timeout=wait)
        except queue.Empty:
            pass
        worker = lease()
        wait = None if worker is None else worker._renew()
        del worker


_moment_form = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z")


def _millis(text):
    """Milliseconds since 1970 of an RFC 3339 time in UTC, cut to the whole one."""
    match = _moment_form.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    seconds = calendar.timegm(tuple(int(part) for part in match.groups()[:6]))
    return seconds * 1000 + int((match[7] or "").ljust(3, "0")[:3])


def _moment(millis):
    """The RFC 3339 time of milliseconds since 1970."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(millis // 1000)) + f".{millis % 1000:03d}Z"
