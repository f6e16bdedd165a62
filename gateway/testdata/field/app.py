"""A payment as a WSGI application, for any server. It writes down each effect, and each answer that
the server has taken over for sending, in a file that outlives it."""

import os
import random
import time

book = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(word, key):
    os.write(book, f"{word} {key}\n".encode())


def application(environ, start_response):
    key = environ["HTTP_IDEMPOTENCY_KEY"]
    if "HTTP_X_EARLY" in environ:  # with the body unread
        note("effect", key)
        start_response("402 Payment Required", [("Content-Type", "text/plain"), ("Content-Length", "8")])
        return [b"no money"]
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    note("effect", key)
    time.sleep(random.uniform(0, 0.03))
    body = f"paid {key}".encode()
    start_response("201 Created", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])

    def answer():
        yield body
        note("sent", key)  # the server asks for more when it has sent this

    return answer()
