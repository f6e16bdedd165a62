"""A payment as a WSGI application, whose process can die, also in the middle of its answer."""

import os
import signal
import urllib.request


def tell(what, key):
    urllib.request.urlopen(f"{os.environ['BOOK']}/{what}/{key}").read()


def application(environ, start_response):
    key, event = environ["HTTP_IDEMPOTENCY_KEY"], environ.get("HTTP_X_EVENT")
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    tell("begun", key)
    if event == "thrown":
        raise ValueError("no money")
    if event == "slow":
        tell("wait", key)
    if event in ("killed", "gone"):
        os.kill(os.getpid(), signal.SIGKILL)
    start_response("201 Created", [("Content-Type", "text/plain")])
    yield b"half of it, "
    if event == "part":
        os.kill(os.getpid(), signal.SIGKILL)
    if event == "thrown late":
        raise ValueError("no money")
    tell("ended", key)
    yield b"and the rest"
