"""One request and its answer, over http.client, and the connections that are kept for more."""

from __future__ import annotations

import collections
import contextlib
import http.client
import io
import os
import re
import socket
import time

from . import clocks
from .errors import TimedOut, Unavailable, UnknownOutcome

try:
    from ssl import SSLWantReadError
except ImportError:  # a Python without TLS
    SSLWantReadError = BlockingIOError

MOST = 16 << 20  # bytes of an answer that are read

# How many connections a client keeps without a request, and for how many seconds: each less than
# the two minutes after which a service closes them, and from the first request on no longer than
# AGE, so that a service with another address is found.
KEPT, IDLE, AGE = 8, 30.0, 60.0


class Connections:
    """The connections of one client. Any thread may send: each request has a connection to itself.
    A process that forks shares none with its child.
    """

    def __init__(self, url):
        self._url, self._most, self._process = url, KEPT, os.getpid()
        # the last used is at the end; a deque needs no lock, which a fork could leave taken
        self._kept = collections.deque()

    def __reduce__(self):
        return Connections, (self._url,)  # another process has its own

    def __del__(self):
        self.close()

    def close(self):
        """Ends the connections that are kept, and keeps none from now on."""
        self._most = 0
        self._drop()

    def send(self, method, path, headers, body, timeout):
        """Sends one request, once, and returns the status, the headers and the text of its answer.
        Before it is sent nothing can have been done: a kept connection that the other side has
        closed is found by then, and another is opened. After that it is not known unless an answer
        comes.
        """
        until = time.monotonic() + timeout
        try:
            connection = self._take() or _Connection(self._url, timeout)
        except (OSError, UnicodeError) as error:  # refused, not resolved, not trusted: nothing was sent
            raise Unavailable("unavailable", f"no connection: {error}") from None
        try:
            return connection.exchange(until, method, path, headers, body)
        except socket.timeout:
            failure = TimedOut("unknown-outcome", "no answer in time")
        except (OSError, ValueError, http.client.HTTPException) as error:
            failure = UnknownOutcome("unknown-outcome", f"no answer: {type(error).__name__}")
        finally:
            self._put(connection)
        raise failure  # here, since the error above may hold what the other side has sent

    def _take(self):
        """A connection that is kept and still good, None if there is none."""
        if self._process != os.getpid():  # this is a fork: they are the other process's
            self._process, kept = os.getpid(), self._kept
            self._kept = collections.deque()
            for connection in kept:
                connection.close()  # in this process alone
        with contextlib.suppress(IndexError):
            while True:
                connection = self._kept.pop()
                if connection.is_good():
                    return connection
                connection.close()
        return None

    def _put(self, connection):
        if connection.spare <= 0 or self._process != os.getpid():
            connection.close()
            return
        self._kept.append(connection)
        self._drop()

    def _drop(self):
        """Closes what is too much, the longest unused first."""
        with contextlib.suppress(IndexError):  # another thread took it
            while len(self._kept) > self._most:
                self._kept.popleft().close()


class _Connection:
    """One connection, for one request after the other."""

    def __init__(self, url, timeout):
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._http = kind(url.hostname, url.port, timeout=timeout)
        self._http.response_class = _Response
        self._http.auto_open = False  # what was sent is not sent again
        self._http.connect()
        self._socket = self._http.sock
        self._line = _Line(self._socket)
        self._http.sock = _Stream(self._line)
        self._opened = self._used = clocks.read()
        self.spare = 0.0  # seconds for which it may be kept; 0 = not at all

    def exchange(self, until, method, path, headers, body):
        """Sends a request and reads its answer. http.client follows no redirect and repeats
        nothing.
        """
        self._line.until, self.spare, was_sent = until, 0.0, True
        try:
            self._http.request(method, path, body, headers)
        except ConnectionError:
            was_sent = False  # what refuses a large body unread has answered before it closed
        response = self._http.getresponse()
        text = _whole(response)
        if was_sent and response.status >= 200 and not response.will_close:
            self.spare, self._used = _spare(response.headers.get("Keep-Alive", "")), clocks.read()
        return response.status, response.headers, text

    def is_good(self):
        """Reports whether a request may be sent: the other side has sent nothing since its last
        answer, not even that it has closed.
        """
        if clocks.passed(self._used) >= self.spare or clocks.passed(self._opened) >= AGE:
            return False
        self._line.until = None
        try:
            self._http.sock.peek(1)
        except (BlockingIOError, SSLWantReadError):
            return True
        except OSError:
            pass  # it is broken
        return False

    def close(self):
        self._socket.close()


def _spare(told):
    """Seconds to keep a connection: less than the other side says that it keeps it."""
    match = re.match("timeout=([0-9]{1,9})", told)
    return min(IDLE, int(match[1]) - 1) if match else IDLE


def _whole(response):
    """The body of an answer. Other clients refuse a length that is none as well."""
    lengths = set(response.headers.get_all("Content-Length", []))
    if not response.chunked and (len(lengths) > 1 or any(not re.fullmatch("[0-9]{1,18}", length) for length in lengths)):
        raise ValueError("no length")
    text = response.read(MOST + 1)
    if response.length or len(text) > MOST:
        raise ValueError("it is shorter than it says, or too long")
    return text


class _Response(http.client.HTTPResponse):
    """An answer, after those that only say that it is to come, such as 103."""

    def begin(self):
        super().begin()
        while 101 < self.status < 200:
            self.headers = None
            super().begin()


class _Line(io.RawIOBase):
    """What comes by a socket until a moment, however slowly an answer comes: the timeout of a
    socket is that of each read alone. Without the moment it is what is there now.
    """

    def __init__(self, line):
        self._line, self.until = line, None

    def _left(self):
        left = self.until - time.monotonic()
        if left <= 0:
            raise socket.timeout
        return left

    def sendall(self, data):
        self._line.settimeout(self._left())
        self._line.sendall(data)

    def readable(self):
        return True

    def readinto(self, buffer):
        self._line.settimeout(0 if self.until is None else self._left())
        return self._line.recv_into(buffer)

    def close(self):
        """Does nothing: the connection closes its socket."""


class _Stream(io.BufferedReader):
    """What http.client takes for a socket, and for the file of each answer: what an answer leaves
    in the buffer is seen before the next request.
    """

    def sendall(self, data):
        self.raw.sendall(data)

    def makefile(self, _):
        return self

    def close(self):
        """Does nothing: http.client closes it before the answer is read, and after that."""
