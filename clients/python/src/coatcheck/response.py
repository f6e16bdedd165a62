"""What becomes of what the work returns."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from .ask import is_number, utf8, written


class Response:
    """A result with a status and headers of its own, for the work of run_once to return. Any other
    result is the body of a Response with status 200.

    body is bytes or str, which are recorded as they are, None, or what json.dumps writes. Anything
    else is a TypeError, such as a generator, a map(), a coroutine in a list, a set or NaN.
    """

    def __init__(self, body: Any = None, status: int = 200, headers: Optional[Mapping[str, str]] = None) -> None:
        if not is_number(status) or not 200 <= status <= 599:
            raise ValueError("a status is a number of 200 to 599")
        self.status, self.headers, self.body = int(status), dict(headers or {}), b""
        for text in (text for field in self.headers.items() for text in field):
            utf8("the name or value of a header", text)
        if body is None:
            return
        if isinstance(body, (bytes, bytearray, memoryview)):
            self.body = bytes(body)
            return
        try:
            self.body = body.encode() if isinstance(body, str) else written(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"a result of type {type(body).__name__} cannot be recorded: {error}") from error
        if not isinstance(body, str) and not any(name.lower() == "content-type" for name in self.headers):
            self.headers["Content-Type"] = "application/json"


def response_of(result):
    """The response that a result of the work is. A TypeError leaves the operation in doubt: what
    cannot be read, such as a future, does not show that the work has ended.
    """
    return result if isinstance(result, Response) else Response(result)
