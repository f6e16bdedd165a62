"""A service on Python's own http.server, which reads a path as SimpleHTTPRequestHandler does."""

import collections
import http.server
import json
import posixpath
import sys
import urllib.parse

runs = collections.Counter()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out whole

    def path_of(self):
        return posixpath.normpath(urllib.parse.unquote(urllib.parse.urlparse(self.path).path))

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path_of() in ("/payments", "/api/payments"):  # below a prefix as well
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


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
