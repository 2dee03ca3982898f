"""The Docker bridge's socket while the bridge is busy: clients wait, and none is refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

AT_ONCE = 500


def test_a_bridge_that_accepts_nothing_for_a_while_refuses_nobody(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    words = ("-m", "rollbox_bridges.docker", "--socket", str(path), "--url", "http://127.0.0.1:1")
    environ = {**os.environ, "ROLLBOX_API_KEY": "rbx_test"}
    with (
        subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, env=environ) as bridge,
        ExitStack() as stack,
    ):
        try:
            assert bridge.stdout is not None
            assert bridge.stdout.readline().startswith(b"export DOCKER_HOST=")
            bridge.send_signal(signal.SIGSTOP)
            for _ in range(AT_ONCE):
                client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                client.setblocking(False)
                client.connect(str(path))
        finally:
            bridge.send_signal(signal.SIGCONT)
            bridge.terminate()
