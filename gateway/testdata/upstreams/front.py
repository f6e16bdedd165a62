"""nginx before a service, or PHP's own server; the second argument says which. It ends with its
parent.
"""

import ctypes
import http.server
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import counting

taken_at, kind = sys.argv[1], sys.argv[2]
folder = tempfile.mkdtemp(prefix="coatcheck-front-")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def nginx(port):
    behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), counting.Handler)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join("%s_temp_path %s/%s;" % (one, folder, one) for one in temporary)
    at = "proxy_pass http://127.0.0.1:%d;" % behind.server_port
    with open(folder + "/nginx.conf", "w") as conf:
        conf.write(
            """daemon off; master_process off; pid %s/pid; error_log /dev/null; events {}
http { access_log off; %s server {
listen 127.0.0.1:%d;
location ~ ^/payments$ { %s }
location = %s { %s }
location / { return 404; } } }"""
            % (folder, places, port, at, taken_at, at)
        )
    return ["/usr/sbin/nginx", "-c", folder + "/nginx.conf", "-p", folder]


def php(port):
    for name in ("index.php", "pay.php"):
        os.symlink(os.path.abspath(name), folder + "/" + name)
    return ["php", "-d", "display_errors=0", "-S", "127.0.0.1:%d" % port, "-t", folder]


port = free_port()
command = nginx(port) if kind == "nginx" else php(port)
environment = dict(os.environ, RUNS=folder + "/runs", TAKEN=taken_at)
nowhere = subprocess.DEVNULL
child = subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere, preexec_fn=with_parent)
while child.poll() is None:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except OSError:
        time.sleep(0.02)
print(port, flush=True)
child.wait()
