"""Ids that the service makes. A program that needs many stamps them itself: see WorkerId."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, List

from .errors import _whole


class Ids:
    """The calls of Client about ids. After an error ask again: lost ids are a gap."""

    def snowflake_ids(self, pool: str = "", n: int = 1) -> List[int]:
        """Stamps n ids (1 to 10,000) with the service's own worker id of a pool; "" is
        its default.
        """
        return [int(made) for made in self._ids("snowflake" + (f"/{_quoted(pool)}" if pool else ""), n)]

    def segment_ids(self, tag: str, n: int = 1) -> List[int]:
        """Takes n ids (1 to 10,000) of a tag, from the range that the service has fetched ahead."""
        return [int(made) for made in self._ids(f"segment/{_quoted(tag)}", n)]

    def uuids(self, n: int = 1, version: int = 7) -> List[str]:
        """Makes n UUIDs of version 4 or 7."""
        return self._ids("uuid", n, version=version)

    def ulids(self, n: int = 1) -> List[str]:
        """Makes n ULIDs."""
        return self._ids("ulid", n)

    def typeids(self, prefix: str = "", n: int = 1) -> List[str]:
        """Makes n TypeIDs of a prefix, such as order_01h455vb4pex5vsknk084sn02q."""
        return self._ids("typeid", n, prefix=prefix)

    def decode_id(self, id: str, format: str = "decimal") -> Dict[str, Any]:
        """Takes an id apart: the time and, of a Snowflake id, worker id and sequence. format is as
        of GET /id/decode, such as ulid or typeid.
        """
        return self.request("GET", f"/id/decode/{_quoted(str(id))}?format={_quoted(format)}")

    def _ids(self, path, n, **query):
        made = self.request("GET", f"/id/{path}?" + urllib.parse.urlencode({"n": n, **query}))
        ids = made.get("ids")
        return _whole(made, isinstance(ids, list) and len(ids) == n)["ids"]


def _quoted(text):
    return urllib.parse.quote(text, safe="")
