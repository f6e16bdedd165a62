"""Snowflake ids: a timestamp, a worker id and a sequence.

Nothing here reads a clock or asks a service: what time it is, and for when it may stamp, a
generator is told.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple, Optional, Tuple


class Layout(NamedTuple):
    """The bits of an id's parts, from the highest on, and the milliseconds of its unit of time."""

    timestamp: int
    datacenter: int
    worker: int
    sequence: int
    unit: int


_form = re.compile(r"([0-9]{1,2})/(?:([0-9]{1,2})/)?([0-9]{1,2})/([0-9]{1,2})(@s)?")


def layout_of(text: str) -> Layout:
    """A layout; ValueError for what the service does not write."""
    match = _form.fullmatch(text)
    if match is None:
        raise ValueError("not a layout")
    layout = Layout(*(int(bits or 0) for bits in match.groups()[:4]), 1000 if match[5] else 1)
    if layout.timestamp < 20 or layout.worker < 1 or sum(layout[:4]) > 63:
        raise ValueError("not a layout")
    return layout


class Generator:
    """Stamps ids that rise, with one worker id. Only one thread may use it at a time."""

    def __init__(self, layout: Layout, epoch: int, not_before: int, datacenter: int, worker_id: int) -> None:
        """epoch and not_before, before which no id is, are milliseconds since 1970."""
        if not 0 <= worker_id < 1 << layout.worker or not 0 <= datacenter < 1 << layout.datacenter:
            raise ValueError("the worker id does not fit its layout")
        self._layout, self._epoch, self._first = layout, epoch, not_before
        self._who = (datacenter << layout.worker | worker_id) << layout.sequence
        self._unit, self._sequence = -1, 0  # of the last id

    def stamp(self, time: float, not_after: int) -> Tuple[Optional[int], float]:
        """Stamps an id at a time, for a window that ends at not_after, both in milliseconds since
        1970: the id, or None and in how many milliseconds to ask again. The whole unit of an id
        lies in the window. A time before that of the last id counts as that one. OverflowError: the
        layout's timestamp is used up.
        """
        layout, length = self._layout, self._layout.unit
        unit = max(int((time - self._epoch) // length), self._unit)
        starts = self._epoch + unit * length
        if starts < self._first:
            # the first unit that lies wholly in the window
            return None, self._epoch - (self._epoch - self._first) // length * length - time
        if starts + length > not_after:
            return None, 10  # a renewal moves the end, or the lease ends
        if unit >> layout.timestamp:
            raise OverflowError("the layout's timestamp is used up")
        # a fresh unit begins anywhere in the lower half, so that ids modulo a number are even
        sequence = self._sequence + 1 if unit == self._unit else random.randrange((1 << layout.sequence) // 2 or 1)
        if sequence >> layout.sequence:
            return None, max(starts + length - time, 0)
        self._unit, self._sequence = unit, sequence
        return unit << layout.datacenter + layout.worker + layout.sequence | self._who | sequence, 0

    @property
    def used_until(self) -> int:
        """The end of the last id's unit, in milliseconds since 1970, where another's window may
        begin.
        """
        return self._first if self._unit < 0 else self._epoch + (self._unit + 1) * self._layout.unit
