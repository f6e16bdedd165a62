"""A handler of Python's http.server that counts payments by key."""

import collections
import http.server
import json
import sys

runs = collections.Counter()


class Handler(http.server.BaseHTTPRequestHandler):
    def pays(self):
        return True

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.pays():
            runs[self.headers.get("Idempotency-Key", "")] += 1
            self.answer(201, b"paid")
        else:
            self.answer(404)

    def do_GET(self):
        if self.path == sys.argv[1]:
            taken = json.dumps(runs).encode()
            runs.clear()
            self.answer(200, taken)
        else:
            self.answer(404)

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
