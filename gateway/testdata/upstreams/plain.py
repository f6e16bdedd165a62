"""A service on Python's own http.server, which reads a path as SimpleHTTPRequestHandler does."""

import http.server
import posixpath
import urllib.parse

import counting


class Handler(counting.Handler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out whole

    def pays(self):
        path = posixpath.normpath(urllib.parse.unquote(urllib.parse.urlparse(self.path).path))
        return path in ("/payments", "/api/payments")  # below a prefix as well


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
