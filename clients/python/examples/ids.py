"""Prints Snowflake ids that no other process makes, one a line: python3 ids.py --server URL --pool
orders --n 10

It stamps them itself, with a worker id that it leases. Ctrl-C and SIGTERM end it in order: the
worker id is given back. Exit codes: 0 done, 1 failed, 75 try again later, among others when the
lease could not be kept.
"""

import argparse
import os
import signal
import sys
import time

try:
    import coatcheck
except ModuleNotFoundError:
    sys.exit("the package is not installed: pip install ./clients/python")

TRY_LATER = 75


def main():
    options = arguments()
    try:
        worker = lease(options)
    except coatcheck.Error as error:
        print(error, file=sys.stderr)
        return TRY_LATER if isinstance(error, (coatcheck.Unavailable, coatcheck.UnknownOutcome)) else 1
    except ValueError as error:  # it was not sent, such as a pool with a name that cannot be one
        print(error, file=sys.stderr)
        return 1
    print(f"worker id {worker.worker_id}, fence {worker.fence}", file=sys.stderr, flush=True)
    code = 0
    try:
        stamp(worker, options)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except coatcheck.NoLease as error:
        print(error, file=sys.stderr)
        code = TRY_LATER
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        worker.release()
    except coatcheck.Error as error:
        print(f"not given back, it ends with its window: {error}", file=sys.stderr)
    return code


def lease(options):
    """Leases a worker id, and waits for one as long as --patience says."""
    until = time.monotonic() + options.patience
    while True:
        try:
            ttl = None if options.ttl_ms is None else options.ttl_ms / 1000
            key = os.environ.get("COATCHECK_API_KEY", "")
            return coatcheck.WorkerId(options.server, options.pool, options.identity, ttl, options.layout, key=key)
        except (coatcheck.Unavailable, coatcheck.UnknownOutcome) as error:
            wait = min(error.retry_after or 1, 5)  # not longer: another process may give one back
            if time.monotonic() + wait > until:
                raise
            time.sleep(wait)


def stamp(worker, options):
    made = 0
    while options.n == 0 or made < options.n:
        print(worker.next_id(), flush=True)
        made += 1
        if options.rate:
            time.sleep(1 / options.rate)


def interrupt(*_):
    raise KeyboardInterrupt


def arguments():
    parser = argparse.ArgumentParser(description="Prints Snowflake ids that no other process makes, one a line.")
    parser.add_argument("--server", default=os.environ.get("COATCHECK_SERVER", "http://127.0.0.1:8080"), help="the service's URL")
    parser.add_argument("--pool", default="default", help="whose worker ids to use")
    parser.add_argument("--identity", default="", help="a name of this process: it gets the worker id again that it had last, if that is free")
    parser.add_argument("--n", type=int, default=10, help="how many ids; 0 = until it is ended")
    parser.add_argument("--rate", type=float, default=0, help="ids in a second; 0 = as fast as it goes")
    parser.add_argument("--ttl-ms", type=int, help="of a pool that is new: how long a window is")
    parser.add_argument("--layout", help="of a pool that is new: bits of timestamp/worker/sequence, such as 41/10/12")
    parser.add_argument("--patience", type=float, default=0, metavar="SECONDS", help="how long to wait for a worker id")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before there was a worker id
        sys.exit(130)
