"""Ids that the service makes. A program that needs many stamps them itself: see WorkerId."""

from __future__ import annotations

from typing import Any, Dict, List, Union

from .ask import Asking, named, quoted, with_query


class Ids(Asking):
    """The calls of Client about ids, 1 to 10,000 at a time. After an error ask again: lost ids are
    a gap.
    """

    def snowflake_ids(self, pool: str = "", n: int = 1) -> List[int]:
        """n Snowflake ids, by the service's own worker id of a pool; "" is its default."""
        path = named("/id/snowflake", pool) if pool else "/id/snowflake"
        return [int(made) for made in self._ids(path, n, _digits)]

    def segment_ids(self, tag: str, n: int = 1) -> List[int]:
        """n ids of a tag, from the range that the service has fetched ahead."""
        return [int(made) for made in self._ids(named("/id/segment", tag), n, _digits)]

    def uuids(self, n: int = 1, version: int = 7) -> List[str]:
        """n UUIDs of version 4 or 7."""
        return self._ids("/id/uuid", n, lambda made: len(made) == 36, version=version)

    def ulids(self, n: int = 1) -> List[str]:
        """n ULIDs."""
        return self._ids("/id/ulid", n, lambda made: len(made) == 26)

    def typeids(self, prefix: str = "", n: int = 1) -> List[str]:
        """n TypeIDs, with a prefix such as "order"."""
        return self._ids("/id/typeid", n, lambda made: not prefix or made.startswith(prefix + "_"), prefix=prefix)

    def decode_id(self, id: Union[int, str], pool: str = "") -> Dict[str, Any]:
        """The parts of a Snowflake id of a pool, or of the default layout, as the service tells
        them.
        """
        return self._ask("GET", with_query("/id/decode/" + quoted(str(id)), pool=pool), lambda parts: parts.get("time"))

    def _ids(self, path, n, fits, **parameters):
        """Asks for n ids, and checks that so many came."""

        def whole(made):
            ids = _listed(made)
            return isinstance(ids, list) and len(ids) == n and all(isinstance(one, str) and fits(one) for one in ids)

        return _listed(self._ask("GET", with_query(path, n=n, **parameters), whole))


def _listed(made):
    return made.get("ids", [made["id"]] if "id" in made else None)


def _digits(made):
    return made.isascii() and made.isdecimal() and len(made) < 20
