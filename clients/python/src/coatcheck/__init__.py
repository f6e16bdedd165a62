"""Idempotency tokens and worker ids of a coatcheck service.

run_once does a piece of work once for each token, whatever fails meanwhile. WorkerId leases a
worker id and stamps Snowflake ids with it that no other process stamps. Client has the single
steps. Python 3.9 or later, standard library only.
"""

from .errors import Error, Lost, TimedOut, Unavailable, UnknownOutcome
from .tokens import Attempt, Client, NotRecorded, fingerprint, run_once
from .workerid import NoLease, WorkerId

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Client",
    "Error",
    "Lost",
    "NoLease",
    "NotRecorded",
    "TimedOut",
    "Unavailable",
    "UnknownOutcome",
    "WorkerId",
    "fingerprint",
    "run_once",
]
