"""What becomes of an operation by what its work is and returns: work.py URL GROUP. Each line names
a work, what run_once returns or raises, and what a repeat of its operation gets.
"""

import asyncio
import concurrent.futures
import functools
import io
import sys
import time

import coatcheck

client = coatcheck.Client(sys.argv[1])


def yields(_):
    yield "paid"


async def yields_at_times(_):
    yield "paid"


class Yields:
    def __call__(self, _):
        yield "paid"


async def pay():
    return "paid"


def coroutine():
    made = pay()
    asyncio.run(made)  # else Python warns that it never ran
    return made


circular = []
circular.append(circular)

NO_DATA = {
    "a generator": lambda: yields(None),
    "an asynchronous generator": lambda: yields_at_times(None),
    "map": lambda: map(str, [1]),
    "a coroutine": coroutine,
    "a future": concurrent.futures.Future,
    "a function": lambda: pay,
    "a file": lambda: io.BytesIO(b"paid"),
    "an error": lambda: ValueError("declined"),
    "a set": lambda: {"paid"},
    "keys that are no text": lambda: {(1, 2): "paid"},
    "an object": object,
    "NaN": lambda: float("nan"),
    "a list within itself": lambda: circular,
}
PLACES = {
    "": lambda result: result,
    " in a list": lambda result: [result],
    " in a dict": lambda result: {"paid": result},
    " in a Response": lambda result: coatcheck.Response(result, 201),
}
GROUPS = {
    "later": {"def with yield": yields, "async def with yield": yields_at_times, "__call__ with yield": Yields(), "partial of yield": functools.partial(yields)},
    "data": {
        "a tuple": lambda _: (42, {"a": 1}, "x"),
        "a status": lambda _: {"status": "paid"},
    },
    "responses": {"a Response": lambda _: coatcheck.Response({"paid": True}, 201)},
    "no data": {
        kind + place: lambda _, made=made, put=put: put(made()) for kind, made in NO_DATA.items() for place, put in PLACES.items()
    },
}


def told(key, work, lease):
    try:
        answer, replayed = coatcheck.run_once(client, key=key, fingerprint="f", work=work, lease=lease)
    except coatcheck.Error as error:
        return error.code
    except Exception as error:
        return type(error).__name__
    return f"{answer['status']} {answer['body'].decode()}{' again' if replayed else ''}"


for name, work in GROUPS[sys.argv[2]].items():
    first = told(name, work, 0.1)
    while (repeat := told(name, lambda _: "ran", 30)) == "idempotency-in-progress":
        time.sleep(0.05)
    print(f"{name}: {first}, then {repeat}")
