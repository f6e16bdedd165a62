"""Payments on gunicorn and PostgreSQL, with the table of operations of docs/effects.md. RECIPE is a
file with the statements of that page, and LIMIT_MS the time after which the gateway gives up.
"""

import json
import os
import random
import threading
import time

import psycopg2

with open(os.environ["RECIPE"], encoding="utf-8") as file:
    RECIPE = json.load(file)
LIMIT = int(os.environ["LIMIT_MS"]) / 1000
own = threading.local()  # a connection for each thread


def cursor():
    if getattr(own, "connection", None) is None or own.connection.closed:
        own.connection = psycopg2.connect("")  # PGHOST and so on say where
        own.connection.autocommit = True  # the recipe begins its transactions itself
    return own.connection.cursor()


def run(at, statement, **values):
    at.execute(statement["sql"], [values[name] for name in statement["args"]])
    return at.rowcount


def forget():
    """Closes this thread's connection, and with it the transaction."""
    if getattr(own, "connection", None) is not None:
        own.connection.close()
        own.connection = None


def delay(key):
    """One payment of fifteen takes about as long as the gateway waits; a lone one half of that."""
    if key.startswith("lone"):
        return LIMIT / 2
    return random.uniform(0, 0.06) if random.randrange(15) else LIMIT + random.uniform(-0.1, 0.1)


def pay(operation, fence, key):
    time.sleep(delay(key))
    payment = f"{random.getrandbits(64):016x}"
    answer = f"paid {key} {payment}"
    try:
        at = cursor()
        for statement in RECIPE["effect"][:-1]:
            changed = run(at, statement, operation=operation, fence=fence, answer=answer)
        if changed == 0:
            at.execute("ROLLBACK")
            run(at, RECIPE["resolver"][-2], operation=operation)
            (former,) = at.fetchone()
            if former is not None:
                return "201 Created", {"Content-Type": "text/plain"}, former
            return "409 Conflict", {"Content-Type": "application/problem+json"}, '{"code": "idempotency-superseded"}'
        at.execute("INSERT INTO payments (id, client_key) VALUES (%s, %s)", (payment, key))
        time.sleep(random.uniform(0, 0.01))
    except psycopg2.Error as error:  # the connection's end is a rollback
        forget()
        return "503 Service Unavailable", {"Idempotency-Not-Begun": "true"}, str(error)
    run(at, RECIPE["effect"][-1])
    time.sleep(random.uniform(0, 0.04))
    return "201 Created", {"Content-Type": "text/plain"}, answer


def close(operation, fence):
    at = cursor()
    answer = None
    for statement in RECIPE["resolver"]:
        run(at, statement, operation=operation, fence=fence)
        if at.description:
            (answer,) = at.fetchone()
    if answer is None:
        return "204 No Content", {"Idempotency-Resolution": "not-begun"}, ""
    return "201 Created", {"Content-Type": "text/plain", "Idempotency-Resolution": "completed"}, answer


def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    named = environ.get("HTTP_IDEMPOTENCY_OPERATION", ""), int(environ.get("HTTP_IDEMPOTENCY_FENCE") or 0)
    try:
        if (method, path) == ("POST", "/payments"):
            status, headers, text = pay(*named, body)
        elif (method, path) == ("PUT", "/operations/" + named[0]) and environ.get("HTTP_IDEMPOTENCY_RESOLVE") == "true":
            status, headers, text = close(*named)
        else:
            status, headers, text = "404 Not Found", {}, ""
    except psycopg2.Error as error:  # of a commit too: nobody knows
        forget()
        status, headers, text = "503 Service Unavailable", {}, str(error)
    data = text.encode()
    start_response(status, list(headers.items()) + ([("Content-Length", str(len(data)))] if status[:3] != "204" else []))
    return [data]
