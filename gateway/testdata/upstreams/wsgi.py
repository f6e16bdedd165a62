"""A service of one of WSGI's frameworks, which the second argument names, on gunicorn."""

import collections
import json
import socket
import sys

from gunicorn.app.base import BaseApplication

runs = collections.Counter()
taken_at, framework = sys.argv[1], sys.argv[2]


def pay(key):
    runs[key or ""] += 1
    return "paid"


def take():
    taken = json.dumps(runs)
    runs.clear()
    return taken


def flask_app():
    import flask

    app = flask.Flask(__name__)
    app.add_url_rule("/payments", "pay", lambda: (pay(flask.request.headers.get("Idempotency-Key")), 201), methods=["POST"])
    app.add_url_rule(taken_at, "take", take)
    return app


def falcon_app():
    import falcon

    class Payments:
        def on_post(self, request, response):
            response.text, response.status = pay(request.get_header("Idempotency-Key")), 201

    class Taken:
        def on_get(self, _, response):
            response.text = take()

    app = falcon.App()
    app.add_route("/payments", Payments())
    app.add_route(taken_at, Taken())
    return app


def bottle_app():
    import bottle

    app = bottle.Bottle()

    def paid():
        bottle.response.status = 201
        return pay(bottle.request.headers.get("Idempotency-Key"))

    app.route("/payments", "POST", paid)
    app.route(taken_at, "GET", take)
    return app


def pyramid_app():
    from pyramid.config import Configurator
    from pyramid.response import Response

    with Configurator() as config:
        config.add_route("payments", "/payments", request_method="POST")
        config.add_view(lambda r: Response(pay(r.headers.get("Idempotency-Key")), status=201), route_name="payments")
        config.add_route("taken", taken_at)
        config.add_view(lambda r: Response(take()), route_name="taken")
        return config.make_wsgi_app()


def django_app():
    import logging

    import django.core.wsgi
    from django import http, urls
    from django.conf import settings
    from django.views.decorators import csrf, http as methods

    logging.disable()
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls_of_payments", MIDDLEWARE=["django.middleware.common.CommonMiddleware"], LOGGING_CONFIG=None
    )
    module = type(sys)("urls_of_payments")
    paid = csrf.csrf_exempt(methods.require_POST(lambda r: http.HttpResponse(pay(r.headers.get("Idempotency-Key")), status=201)))
    module.urlpatterns = [urls.path("payments", paid), urls.path(taken_at.lstrip("/"), lambda _: http.HttpResponse(take()))]
    sys.modules["urls_of_payments"] = module
    return django.core.wsgi.get_wsgi_application()


class Server(BaseApplication):
    def load_config(self):
        self.cfg.set("bind", "fd://%d" % listening.fileno())
        self.cfg.set("workers", 1)
        self.cfg.set("loglevel", "critical")

    def load(self):
        return globals()[framework + "_app"]()


listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(64)
listening.set_inheritable(True)
print(listening.getsockname()[1], flush=True)
Server().run()
