"""kubectl and plain HTTP questions to the cluster."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.layout import KUBECONFIG, PKI
from tests.cluster.toolchain import program


class KubectlError(Exception):
    """kubectl said no; the text is what it wrote."""


def kubectl(*arguments: str, given: str | None = None, check: bool = True, timeout: float = 60.0) -> str:
    """Standard output of one kubectl call as the cluster's administrator."""
    command = [program("kubernetes", "kubectl"), "--kubeconfig", str(KUBECONFIG), *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise KubectlError(f"kubectl {' '.join(arguments)}: no answer within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def read(*arguments: str) -> Any:
    """The object or list that `kubectl get …` names; None when there is none."""
    text = kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text else None


def answers(url: str, **headers: str) -> bool:
    """Whether the address answers with a success."""
    context = ssl.create_default_context(cafile=str(PKI / "ca.crt")) if url.startswith("https") else None
    # A proxy of the caller's environment has no business between this machine and itself.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.build_opener(*handlers).open(request, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def accepts(path: Path) -> bool:
    """Whether somebody listens on the unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True
