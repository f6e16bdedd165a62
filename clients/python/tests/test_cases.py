"""What the clients do alike: every case of clients/cases.json, whose head explains it."""

import concurrent.futures
import io
import json
import pathlib
import socket
import unittest
import urllib.parse

import coatcheck
from script import filled, scripted

TABLE = pathlib.Path(__file__).resolve().parents[2] / "cases.json"


class Work(Exception):
    """The failure of the work itself."""


KINDS = {name: getattr(coatcheck, name) for name in ("Error", "Lost", "NoLease", "NotRecorded", "TimedOut", "Unavailable", "UnknownOutcome", "WorkError")}
KINDS.update(Invalid=(TypeError, ValueError), Work=Work)


def _within_itself():
    made = []
    made.append(made)
    return made


# what the table knows by name only
MADE = {
    "work in a list": lambda: [concurrent.futures.Future()],
    "an iterator": lambda: map(str, [1]),
    "a generator": lambda: (paid for paid in ["paid"]),
    "a function": lambda: lambda: "paid",
    "a stream": lambda: io.BytesIO(b"paid"),
    "an error": lambda: ValueError("declined"),
    "a set": lambda: {"paid"},
    "an object of a class": object,
    "an object of a class in a Response": lambda: coatcheck.Response(object()),
    "NaN": lambda: {"cents": float("nan")},
    "a list within itself": _within_itself,
}


class Cases(unittest.TestCase):
    """Each case is a test: see the end of the file."""

    def run_case(self, case):
        with scripted(case["replies"], case["requests"]) as server:
            port = _closed_port() if case.get("connection") == "refused" else server.server_port
            terms = {name: case[name] for name in ("key", "timeout") if name in case}
            client = coatcheck.Client(f"http://127.0.0.1:{port}{case.get('path', '')}", **terms)
            self.runs = 0
            result = self._expect(case, lambda: self._call(client, case))
            for step in case.get("then", []):
                self._expect({"returns": None, **step}, getattr(result, step["call"]))
        self._compare_requests(filled(case["requests"], server.secrets), server.asked)
        self.assertEqual(self.runs, case.get("runs", 0), "how often the work ran")

    def _call(self, client, case):
        arguments = dict(case["arguments"])
        if case["call"] == "run_once":
            return _answered(coatcheck.run_once(client, work=self._function(case["work"]), **arguments))
        if "body" in arguments:
            arguments["body"] = arguments["body"].encode()
        result = getattr(client, case["call"])(**arguments)
        return [str(one) for one in result] if case["call"] in ("snowflake_ids", "segment_ids") else result

    def _function(self, work):
        def once(attempt):
            self.runs += 1
            if work.get("released"):
                attempt.release()
            if "refused" in work:
                raise coatcheck.Error(work["refused"], "")
            if work.get("raises"):
                raise Work
            if "makes" in work:
                return MADE[work["makes"]]()
            if "response" in work:
                return coatcheck.Response(**work["response"])
            return tuple(work["returns"]) if isinstance(work["returns"], list) else work["returns"]

        def yields(attempt):
            yield once(attempt)

        async def at_times(attempt):
            yield once(attempt)

        return {"once": yields, "at times": at_times}.get(work.get("yields"), once)

    def _expect(self, wanted, call):
        if "raises" not in wanted:
            result = call()
            self._has(result, wanted["returns"], "the result")
            return result
        kind = KINDS[wanted["raises"]["kind"]]
        try:
            result = call()
        except kind if isinstance(kind, tuple) else (kind,) as error:
            if not isinstance(kind, tuple):
                self._failed(error, wanted["raises"])
            return None
        self.fail(f"got {result!r}, want {wanted['raises']}")

    def _failed(self, error, wanted):
        self.assertIs(type(error), KINDS[wanted["kind"]])
        self.assertNotIn("secret", str(error))
        for name, value in wanted.items():
            if name == "cause":
                self._failed(error.__cause__, value)
            elif name == "answer":
                self._has({**error.answer, "body": error.answer["body"].decode()}, value, "the answer")
            elif name != "kind":
                self.assertEqual(getattr(error, name), value, name)

    def _has(self, got, wanted, what):
        """Checks that a result has the members that it must have."""
        if not isinstance(wanted, dict):
            return self.assertEqual(got, wanted, what)
        for name, value in wanted.items():
            self._has(got[name] if isinstance(got, dict) else getattr(got, name), value, f"{what}: {name}")

    def _compare_requests(self, wanted, asked):
        full = [{"query": {}, "headers": {}, "body": {}, **one} for one in wanted]
        got = [{**one, "query": dict(urllib.parse.parse_qsl(one["query"], keep_blank_values=True))} for one in asked]
        self.assertEqual(_without_empty(got), _without_empty(full), "the requests")


def _without_empty(requests):
    return [{**one, "body": {name: value for name, value in one["body"].items() if value != ""}} for one in requests]


def _answered(result):
    answer, replayed = result
    return {"answer": {**answer, "body": answer["body"].decode()}, "replayed": replayed}


def _closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _test(case):
    return lambda self: self.run_case(case)


for _case in json.loads(TABLE.read_text())["cases"]:
    setattr(Cases, "test " + _case["name"], _test(_case))


if __name__ == "__main__":
    unittest.main()
