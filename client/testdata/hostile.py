"""Makes the calls of hostile.json at a server that lies or stalls: hostile.py URL TABLE.
"""

import io
import json
import logging
import pathlib
import sys
import traceback

import coatcheck

URL, TABLE = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text())
SECRETS = TABLE["secrets"]
CALLS = {
    "incr": lambda client: client.incr("orders"),
    "counter": lambda client: client.counter("orders"),
    "extend": lambda client: client.extend(SECRETS["token"], SECRETS["lease"], 1),
    "claim": lambda client: client.claim(SECRETS["token"], "f", 1, lease_token=SECRETS["lease"]),
    "take_limit": lambda client: client.take_limit("mail", rate=2, per=60),
}


def shown(error):
    """All that people print of an error, and that logs have of it."""
    log = io.StringIO()
    logger = logging.Logger("hostile")
    logger.addHandler(logging.StreamHandler(log))
    logger.error("it failed: %s", error, exc_info=error)
    texts = [str(error), repr(error), repr(vars(error)), json.dumps(vars(error), ensure_ascii=False), log.getvalue()]
    texts += traceback.format_exception(type(error), error, error.__traceback__)
    for inner in (error.__cause__, error.__context__):
        texts += shown(inner) if inner is not None else []
    return texts


def check(place, row):
    stalls = row.get("stays") or row.get("again")
    client = coatcheck.Client(f"{URL}/{place}", timeout=0.3 if stalls else 60, key=SECRETS["key"])
    gets = row["gets"]
    try:
        returned = CALLS[row["call"]](client)
    except coatcheck.Error as error:
        assert "kind" in gets, f"got {error!r}, want {gets}"
        assert isinstance(error, getattr(coatcheck, gets["kind"])), f"got {error!r}, want {gets}"
        assert gets["kind"] != "Error" or type(error) is coatcheck.Error, f"got {error!r}, want {gets}"
        for name in set(gets) - {"kind"}:
            assert getattr(error, name) == gets[name], f"got {name} {getattr(error, name)!r} of {error!r}, want {gets}"
        assert str(error).isprintable() and len(str(error)) < 2000, repr(error)
        for text in shown(error):
            assert not any(secret in text for secret in SECRETS.values()), text
            assert all(one.isprintable() or one in "\n\t" for one in text) and "\\x1b" not in text, repr(text)
        return
    assert returned == gets.get("returns"), f"got {returned}, want {gets}"


for place, row in enumerate(TABLE["rows"]):
    try:
        check(place, row)
    except Exception as error:
        raise SystemExit(f"{row['name']}: {type(error).__name__} {error}") from error
print("ok")
