"""A job of coatcheck once on SQLite, with the table of operations of docs/effects.md under the
job's key: `once.py pay` is the job, and `once.py close` its resolver, which exits with 0 or 10.
"""

import json
import os
import random
import sqlite3
import sys
import time

with open(os.environ["RECIPE"], encoding="utf-8") as file:
    RECIPE = json.load(file)
key, fence = os.environ["ONCE_KEY"], int(os.environ["ONCE_FENCE"])
database = sqlite3.connect(os.environ["DATABASE"], 60, isolation_level=None)


def run(statement, **values):
    return database.execute(statement["sql"], [values[name] for name in statement["args"]])


def pay():
    time.sleep(random.uniform(0, 0.1))
    payment = f"{random.getrandbits(64):016x}"
    for statement in RECIPE["effect"][:-1]:
        changed = run(statement, operation=key, fence=fence, answer=payment).rowcount
    if changed == 0:
        database.execute("ROLLBACK")
        if run(RECIPE["resolver"][-2], operation=key).fetchone()[0] is None:
            sys.exit("the operation is closed for this attempt")
        return
    database.execute("INSERT INTO payments (id, client_key) VALUES (?, ?)", (payment, key))
    time.sleep(random.uniform(0, 0.02))
    run(RECIPE["effect"][-1])
    time.sleep(random.uniform(0, 0.1))


def close():
    answer = None
    for statement in RECIPE["resolver"]:
        rows = run(statement, operation=key, fence=fence).fetchall()
        if rows:
            answer = rows[0][0]
    sys.exit(10 if answer is None else 0)


{"pay": pay, "close": close}[sys.argv[1]]()
