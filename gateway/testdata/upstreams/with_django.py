"""A service on Django with its defaults, on the server of the standard library."""

import collections
import logging
import sys
from wsgiref import simple_server

import django.core.wsgi
from django import http, urls
from django.conf import settings
from django.views.decorators import csrf, http as methods

runs = collections.Counter()


@csrf.csrf_exempt
@methods.require_POST
def pay(request):
    runs[request.headers.get("Idempotency-Key", "")] += 1
    return http.HttpResponse("paid", status=201)


def take(_):
    taken = dict(runs)
    runs.clear()
    return http.JsonResponse(taken)


settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
logging.disable()
urlpatterns = [urls.path("payments", pay), urls.path(sys.argv[1].lstrip("/"), take)]


class Silent(simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


server = simple_server.make_server("127.0.0.1", 0, django.core.wsgi.get_wsgi_application(), handler_class=Silent)
print(server.server_port, flush=True)
server.serve_forever()
