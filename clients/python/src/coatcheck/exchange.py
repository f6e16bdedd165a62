"""One request and its answer, over http.client."""

from __future__ import annotations

import http.client
import io
import re
import socket
import time

from .errors import TimedOut, Unavailable, UnknownOutcome

MOST = 16 << 20  # bytes of an answer that are read


def send(url, method, path, headers, body, timeout):
    """Sends one request, once, and returns the status, the headers and the text of its answer.
    http.client follows no redirect and repeats nothing. Before there is a connection nothing can
    have been done; after that it is not known unless an answer comes.
    """
    until = time.monotonic() + timeout
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=timeout)
    connection.response_class = _Response
    try:
        connection.connect()
    except (OSError, UnicodeError) as error:  # refused, not resolved, not trusted: nothing was sent
        raise Unavailable("unavailable", f"no connection: {error}") from None
    line = connection.sock
    connection.sock = _Line(line, until)
    try:
        try:
            connection.request(method, path, body, headers)
        except ConnectionError:
            pass  # what refuses a large body unread has answered before it closed
        response = connection.getresponse()
        return response.status, response.headers, _whole(response)
    except socket.timeout:
        failure = TimedOut("unknown-outcome", "no answer in time")
    except (OSError, ValueError, http.client.HTTPException) as error:
        failure = UnknownOutcome("unknown-outcome", f"no answer: {type(error).__name__}")
    finally:
        line.close()
    raise failure  # here, since the error above may hold what the other side has sent


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
    """A connection that ends at a moment, however slowly an answer comes. The timeout of a socket
    is that of each read alone.
    """

    def __init__(self, line, until):
        self._line, self._until = line, until

    def _left(self):
        left = self._until - time.monotonic()
        if left <= 0:
            raise socket.timeout
        return left

    def sendall(self, data):
        self._line.settimeout(self._left())
        self._line.sendall(data)

    def makefile(self, _):
        return io.BufferedReader(self)

    def readable(self):
        return True

    def readinto(self, buffer):
        self._line.settimeout(self._left())
        return self._line.recv_into(buffer)

    def close(self):
        """Does nothing: http.client closes it before the answer is read."""
