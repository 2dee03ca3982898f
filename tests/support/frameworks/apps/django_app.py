"""Django with its protection of forms, cookies for TLS alone: django_app.py runserver 127.0.0.1:PORT --noreload."""

import hashlib
import sys
import threading
from collections.abc import Iterator

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

GO = threading.Event()
settings.configure(
    DEBUG=True,
    SECRET_KEY="of tests",
    ROOT_URLCONF=__name__,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    SESSION_COOKIE_SECURE=True,
    CSRF_COOKIE_SECURE=True,
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
    ],
)


def form(request: HttpRequest) -> HttpResponse:
    field = f'<input name="csrfmiddlewaretoken" value="{get_token(request)}">'
    return HttpResponse(f'<form method="post" action="send">{field}</form>')


def send(request: HttpRequest) -> HttpResponse:
    request.session["said"] = request.POST["said"]
    return redirect(request.build_absolute_uri("/done"))


def done(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.session['said']} at {request.path}")


def slash(request: HttpRequest) -> HttpResponse:
    return HttpResponse("slash")


@csrf_exempt
def upload(request: HttpRequest) -> HttpResponse:
    sent = request.FILES["file"]
    return HttpResponse(f"{sent.name} {hashlib.sha256(sent.read()).hexdigest()}")


@csrf_exempt
def empty(request: HttpRequest) -> HttpResponse:
    GO.set()
    return HttpResponse(str(len(request.body)))


def events(request: HttpRequest) -> HttpResponseBase:
    def told() -> Iterator[str]:
        yield "data: first\n\n"
        GO.wait()
        GO.clear()
        yield "data: second\n\n"

    return StreamingHttpResponse(told(), content_type="text/event-stream")


urlpatterns = [
    path("", form),
    path("send", send),
    path("done", done),
    path("slash/", slash),
    path("upload", upload),
    path("empty", empty),
    path("events", events),
]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
