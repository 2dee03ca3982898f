"""A process of ipykernel beside this program, and the sockets that lead to it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# How often a kernel that says nothing is looked after.
LOOK_MS = 500
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class Kernel:
    """A process of ipykernel, and its sockets, which are files of a folder of its own.

    Attributes:
        process: of the kernel.
    """

    def __init__(self) -> None:
        import zmq  # type: ignore[import-not-found]
        from jupyter_client.session import Session  # type: ignore[import-not-found]

        self._folder = tempfile.mkdtemp(prefix="jupyter-")
        key = secrets.token_hex(32)
        path = f"{self._folder}/kernel.json"
        places = {f"{name}_port": at + 1 for at, name in enumerate(_CHANNELS)}
        self._connection = {
            **places,
            "ip": f"{self._folder}/s",
            "key": key,
            "transport": "ipc",
            "signature_scheme": "hmac-sha256",
            "kernel_name": "python3",
        }
        self.process = self._started(path)
        self._session = Session(key=key.encode())
        context = zmq.Context()
        self.shell = self._socket(context, zmq.DEALER, "shell")
        self.iopub = self._socket(context, zmq.SUB, "iopub")
        self.iopub.subscribe(b"")
        self._poller = zmq.Poller()
        self._poller.register(self.shell, zmq.POLLIN)
        self._poller.register(self.iopub, zmq.POLLIN)

    def _started(self, path: str) -> subprocess.Popen[bytes]:
        import json

        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(self._connection, file)
        return subprocess.Popen(
            [sys.executable, "-m", "ipykernel_launcher", "-f", path],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},
        )

    def _socket(self, context: Any, kind: int, name: str) -> Any:
        socket = context.socket(kind)
        socket.linger = 0
        socket.connect(f"ipc://{self._connection['ip']}-{self._connection[name + '_port']}")
        return socket

    def unlink(self) -> None:
        """Remove its folder; sockets that are connected need no file, and whoever kills this program leaves none."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, kind: str, content: dict[str, Any]) -> str:
        """Send a request to the shell channel; returns its id."""
        return str(self._session.send(self.shell, kind, content)["header"]["msg_id"])

    def ready(self, limit_ms: int) -> set[Any]:
        """Wait for a message: the sockets that have one. A kernel that is gone ends this program as it has ended."""
        while True:
            found = dict(self._poller.poll(min(limit_ms, LOOK_MS)))
            if found or limit_ms <= LOOK_MS:
                return set(found)
            self.look()
            limit_ms -= LOOK_MS

    def receive(self, socket: Any) -> dict[str, Any]:
        """Take a message of a socket; {} for one that is no message."""
        try:
            return self._session.recv(socket)[1] or {}
        except Exception:
            return {}

    def interrupt(self) -> None:
        """Send it SIGINT."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def look(self) -> None:
        """End as it has ended, if it has."""
        if self.process.poll() is not None:
            self.end()

    def end(self) -> NoReturn:
        """End with it; its client kills what else there is."""
        code = self.process.poll()
        if code is None:
            self.process.kill()
        self.unlink()
        if code is not None and code < 0:
            if -code != signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code or 0)
