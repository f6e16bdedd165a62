"""A service on FastAPI or Starlette, which the second argument names, on uvicorn."""

import collections
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

runs = collections.Counter()


def pay(key):
    runs[key or ""] += 1
    return PlainTextResponse("paid", 201)


def take():
    taken = dict(runs)
    runs.clear()
    return taken


if sys.argv[2] == "fastapi":
    import fastapi

    app = fastapi.FastAPI()

    @app.post("/payments", status_code=201)
    def paid(request: fastapi.Request):
        return pay(request.headers.get("Idempotency-Key"))

    app.get(sys.argv[1])(take)
else:

    async def paid(request):
        return pay(request.headers.get("Idempotency-Key"))

    async def taken(_):
        return JSONResponse(take())

    app = Starlette(routes=[Route("/payments", paid, methods=["POST"]), Route(sys.argv[1], taken)])

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])
