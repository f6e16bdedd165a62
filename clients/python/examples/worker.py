"""Charges an order once, however often it is asked to: python3 worker.py --server URL --token TOKEN
--order 42 --ledger FILE

It prints the answer as one line of JSON, with "replayed": true if it was recorded before. A failure
is a line with "error". Exit codes: 0 done, 1 failed, 75 try again later.
"""

import argparse
import json
import os
import secrets
import sys
import time

try:
    import coatcheck
except ModuleNotFoundError:
    sys.exit("the package is not installed: pip install ./clients/python")

TRY_LATER = 75


def main():
    options = arguments()
    client = coatcheck.Client(options.server, key=os.environ.get("COATCHECK_API_KEY", ""))
    fingerprint = coatcheck.fingerprint("charge", options.order, options.payload)
    try:
        answer, replayed = coatcheck.run_once(client, options.token, fingerprint, charge(options), options.lease_ms / 1000, options.policy)
    except coatcheck.NotRecorded as error:
        return fail(error.__cause__, recorded=False)
    except coatcheck.Error as error:
        return fail(error)
    print(json.dumps({**json.loads(answer["body"]), "status": answer["status"], "replayed": replayed}))
    return 0


def charge(options):
    """The work: one line in the ledger. A real one would ask a payment provider, and give it the
    token as well, if it takes one.
    """

    def work(attempt):
        if options.crash_after_claim:
            os._exit(70)  # as a power cut would
        while options.wait_for and not os.path.exists(options.wait_for):
            attempt.check()
            time.sleep(0.02)
        attempt.check()
        payment = {"order": options.order, "payload": options.payload, "payment": "pay_" + secrets.token_hex(8), "fence": attempt.fence}
        line = (json.dumps(payment) + "\n").encode()
        ledger = os.open(options.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(ledger, line)  # one write: lines of several processes do not mix
            os.fsync(ledger)
        finally:
            os.close(ledger)
        return coatcheck.Response(payment, 201)

    return work


def fail(error, **more):
    print(json.dumps({"error": error.code, "detail": str(error), "retry_after": error.retry_after, **more}))
    later = isinstance(error, coatcheck.Unavailable) or error.code == "idempotency-in-progress"
    return TRY_LATER if later else 1


def arguments():
    parser = argparse.ArgumentParser(description="Charges an order once, however often it is asked to.")
    parser.add_argument("--server", default=os.environ.get("COATCHECK_SERVER", "http://127.0.0.1:8080"), help="the service's URL")
    parser.add_argument("--token", required=True, help="a token that POST /token gave")
    parser.add_argument("--order", required=True, help="what to charge")
    parser.add_argument("--ledger", default="ledger.jsonl", help="the file that a charge is a line of")
    parser.add_argument("--payload", default="12.99 EUR", help="what else makes the request the same")
    parser.add_argument("--policy", default="hold", choices=["hold", "takeover"])
    parser.add_argument("--lease-ms", type=int, default=30000, help="how long the worker may be silent")
    parser.add_argument("--crash-after-claim", action="store_true", help="for trying it out: end at once, with the token claimed")
    parser.add_argument("--wait-for", metavar="FILE", help="for trying it out: do not charge before this file exists")
    return parser.parse_args(glued(sys.argv[1:]))


def glued(words):
    """The command line with --token=TOKEN for --token TOKEN: a token may begin with a dash, and
    argparse would take it for a flag.
    """
    words = list(words)
    for i in reversed(range(len(words) - 1)):
        if words[i] == "--token":
            words[i:i + 2] = ["--token=" + words[i + 1]]
    return words


if __name__ == "__main__":
    sys.exit(main())
