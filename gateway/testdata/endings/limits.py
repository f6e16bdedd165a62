"""A payment on FastAPI. When its time is over it answers with the status of the argument, and the
thread with the work goes on.
"""

import asyncio
import os
import sys
import urllib.request

import fastapi
import uvicorn

app = fastapi.FastAPI()


def tell(what, key):
    urllib.request.urlopen(f"{os.environ['BOOK']}/{what}/{key}").read()


def pay(key, event):
    tell("begun", key)
    if event == "slow":
        tell("wait", key)
    tell("ended", key)


@app.post("/payments", status_code=201)
async def paid(request: fastapi.Request):
    key, event = request.headers["Idempotency-Key"], request.headers.get("X-Event")
    try:
        await asyncio.wait_for(asyncio.to_thread(pay, key, event), 0.3)
    except asyncio.TimeoutError:
        raise fastapi.HTTPException(int(sys.argv[1]))
    return "paid"


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="critical")
