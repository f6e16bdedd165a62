"""A consumer of a table of jobs, until it is killed. Each job is paid once, under the job's id,
with the table of operations of docs/effects.md. SERVICE is coatcheck's URL.
"""

import json
import os
import random
import time

import coatcheck
import psycopg2

with open(os.environ["RECIPE"], encoding="utf-8") as file:
    RECIPE = json.load(file)
client = coatcheck.Client(os.environ["SERVICE"])
connection = psycopg2.connect("")  # PGHOST and so on say where
connection.autocommit = True  # the recipe begins its transactions itself
at = connection.cursor()


def run(statement, **values):
    at.execute(statement["sql"], [values[name] for name in statement["args"]])
    return at.rowcount


def payment_of(job):
    def work(attempt):
        at.execute("INSERT INTO begun (pid) VALUES (%s)", (os.getpid(),))
        time.sleep(random.uniform(0, 0.05))
        payment = f"{random.getrandbits(64):016x}"
        answer = f"paid {job} {payment}"
        for statement in RECIPE["effect"][:-1]:
            changed = run(statement, operation=attempt.operation, fence=attempt.fence, answer=answer)
        if changed == 0:
            at.execute("ROLLBACK")
            run(RECIPE["resolver"][-2], operation=attempt.operation)
            (former,) = at.fetchone()
            if former is not None:
                return former
            raise RuntimeError("the operation is closed for this attempt")
        at.execute("INSERT INTO payments (id, client_key) VALUES (%s, %s)", (payment, job))
        time.sleep(random.uniform(0, 0.02))
        run(RECIPE["effect"][-1])
        time.sleep(random.uniform(0, 0.05))
        return answer

    return work


def resolve(operation, fence):
    answer = None
    for statement in RECIPE["resolver"]:
        run(statement, operation=operation, fence=fence)
        if at.description:
            (answer,) = at.fetchone()
    return coatcheck.NOT_BEGUN if answer is None else coatcheck.Response(answer)


while True:
    at.execute("SELECT id FROM jobs WHERE NOT done ORDER BY random() LIMIT 1")
    row = at.fetchone()
    if row is None:
        time.sleep(0.05)
        continue
    try:
        answer, _ = coatcheck.run_once(
            client, key=row[0], scope="jobs", fingerprint=coatcheck.fingerprint(row[0]), work=payment_of(row[0]), lease=1, resolve=resolve
        )
    except (coatcheck.Error, RuntimeError):  # the job is still there
        time.sleep(0.05)
        continue
    at.execute("INSERT INTO told (client_key, answer) VALUES (%s, %s)", (row[0], answer["body"].decode()))
    at.execute("UPDATE jobs SET done = true WHERE id = %s", (row[0],))
