"""A client of a coatcheck service.

run_once does a piece of work once for each token, or key of your own, whatever fails meanwhile.
Client has the single requests, with counters, rate limits, locks and ids. WorkerId leases a worker
id and stamps Snowflake ids with it that no other process stamps. Python 3.9 or later, standard
library only.
"""

from .client import Client
from .digest import fingerprint
from .errors import Error, Lost, NotRecorded, TimedOut, Unavailable, UnknownOutcome, WorkError
from .locks import Lock
from .once import NOT_BEGUN, Attempt, run_once
from .response import Response
from .workerid import NoLease, WorkerId

__version__ = "1.0.0rc2"

__all__ = [
    "NOT_BEGUN",
    "Attempt",
    "Client",
    "Error",
    "Lock",
    "Lost",
    "NoLease",
    "NotRecorded",
    "Response",
    "TimedOut",
    "Unavailable",
    "UnknownOutcome",
    "WorkError",
    "WorkerId",
    "fingerprint",
    "run_once",
]
