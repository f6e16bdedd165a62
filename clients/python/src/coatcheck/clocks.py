"""The two clocks by which a process stops to trust what it holds.

The monotonic clock stands still while a machine sleeps, and the wall clock may be set: the later
one counts.
"""

from __future__ import annotations

import time


def read():
    """Both clocks in seconds, the monotonic first."""
    return time.monotonic(), time.time()


def after(clocks, span):
    """The same clocks later."""
    return tuple(clock + span for clock in clocks)


def passed(since):
    """Seconds since a reading, by the clock that says more."""
    return max(now - then for now, then in zip(read(), since))
