"""Another cluster, named by KUBECONFIG: nothing is started, and it is only asked whether it can serve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.layout import KUBECONFIG
from tests.cluster.processes import say


def given() -> str | None:
    """The KUBECONFIG of the environment, unless it is that of the cluster made here."""
    path = os.environ.get("KUBECONFIG")
    return path if path and Path(path) != KUBECONFIG else None


def check() -> int:
    """0 when it answers and has gVisor."""
    version = _get("--raw=/version")
    if version is None:
        say(f"The cluster of KUBECONFIG={given()} does not answer: start it, or unset KUBECONFIG for one made here.")
        return 1
    if not _has_gvisor():
        say("The cluster has no RuntimeClass with handler runsc and no node that has it: install gVisor there.")
        return 1
    say(f"cluster: the one of KUBECONFIG={given()}, Kubernetes {version['gitVersion']}, with gVisor; nothing started")
    return 0


def _has_gvisor() -> bool:
    classes = _get("runtimeclasses", "-o", "json") or {"items": []}
    nodes = _get("nodes", "-o", "json") or {"items": []}
    handlers = [h.get("name") for n in nodes["items"] for h in n["status"].get("runtimeHandlers", [])]
    return any(c["handler"] == "runsc" for c in classes["items"]) or "runsc" in handlers


def _get(*arguments: str) -> Any:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise SystemExit("KUBECONFIG is set, but kubectl is not on PATH.")
    command = [kubectl, "get", "--request-timeout=10s", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None
