"""Calls the API server from a hook's pod, with its service account; uses the standard library only."""

import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOK_EVERY_S: Final = 0.5

Json = dict[str, Any]


class ApiError(Exception):
    """The API server refused a call; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HookError(Exception):
    """A hook failed; the message is for the user who runs Helm."""


def call(method: str, path: str, body: Json | None = None) -> Json:
    """Makes one call to the API server.

    Raises:
        ApiError: it answered with an error.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=trust)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": kind}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content: Json = json.loads(answer.read() or b"{}")
    finally:
        connection.close()
    if answer.status >= http.client.BAD_REQUEST:
        raise ApiError(answer.status, str(content.get("message", content)))
    return content


def gone(method: str, path: str, body: Json | None = None) -> bool:
    """As ``call``, but returns whether the object does not exist."""
    try:
        call(method, path, body)
    except ApiError as error:
        if error.status != http.client.NOT_FOUND:
            raise
        return True
    return False


def wait(seconds: float, done: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Polls until ``done`` returns true.

    Raises:
        HookError: it did not within ``seconds``; ``complaint`` returns the message.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise HookError(complaint())
        time.sleep(LOOK_EVERY_S)


def run(hook: Callable[[Json], str]) -> int:
    """Runs a hook with the settings in the file that the command line names; returns the exit status."""
    name = hook.__name__
    try:
        said = hook(json.loads(Path(sys.argv[1]).read_text()))
    except (HookError, ApiError, OSError) as error:
        sys.stderr.write(f"rollbox {name}: {error}\n")
        return 1
    sys.stdout.write(f"rollbox {name}: {said}\n")
    return 0
