"""A server that answers by a script, and keeps what it was asked."""

import contextlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = re.compile(r"<secret:(\w+)>")
CREDENTIALS = ("Authorization", "Lease-Token", "Idempotency-Key")


@contextlib.contextmanager
def scripted(replies, requests=()):
    """Serves the replies in order, as clients/cases.json describes them."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    server.replies, server.wanted, server.asked, server.secrets = list(replies), list(requests), [], {}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def learn(wanted, got, secrets):
    """Notes the secrets of a request, by its place in the case's."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in wanted:
            learn(wanted[name], got.get(name), secrets)
    elif isinstance(wanted, str) and isinstance(got, str):
        match = SECRET.fullmatch(wanted)
        if match and re.fullmatch(r"[A-Za-z0-9_-]{22}", got):
            secrets.setdefault(match[1], got)


def filled(value, secrets):
    """The value with its secrets."""
    return json.loads(SECRET.sub(lambda match: secrets.get(match[1], match[0]), json.dumps(value)))


class _Answers(BaseHTTPRequestHandler):
    def _answer(self):
        server = self.server
        path, _, query = self.path.partition("?")
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = {
            "method": self.command, "path": path, "query": query, "body": json.loads(text) if text else {},
            "headers": {name: self.headers[name] for name in CREDENTIALS if name in self.headers},
        }
        if len(server.asked) < len(server.wanted):
            learn(server.wanted[len(server.asked)], asked, server.secrets)
        server.asked.append(asked)
        reply = server.replies.pop(0) if server.replies else {"fault": "lost"}
        self.close_connection = True
        with contextlib.suppress(OSError):
            getattr(self, "_" + reply.get("fault", "whole"))(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def _whole(self, reply):
        body = filled(reply.get("body", ""), self.server.secrets)
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self._head(reply["status"], reply.get("type", "application/json"), reply.get("headers", {}), len(body))
        self.wfile.write(body)

    def _head(self, status, kind, headers, size):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def _lost(self, _):
        pass

    def _cut(self, _):
        self._head(200, "application/json", {}, 100)
        self.wfile.write(b'{"key":"ord')

    def _silent(self, _):
        self.connection.recv(1)

    def _slow(self, _):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        while True:
            self.wfile.write(b"a")
            time.sleep(0.02)

    def _switched(self, _):
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        self.connection.recv(1)

    def log_message(self, *_):
        pass
