"""The chart on a real cluster, installed the way its README says; gone without a trace afterwards."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.images import CHART_VALUES, REGISTRY

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "helm"

STATE = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "rollbox" / "cluster"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rollbox" / "cluster"
OWNER = "tests"
RELEASE = os.environ.get("ROLLBOX_TEST_RELEASE", "rollbox")
INSTALL_TIMEOUT = "5m"
LEAVES_NONE_OF = (
    *("clusterroles", "clusterrolebindings", "priorityclasses", "runtimeclasses", "pods", "services", "secrets"),
    *("configmaps", "networkpolicies", "persistentvolumeclaims", "jobs"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)


def kubeconfig() -> Path:
    """The given cluster's, else the one of `make cluster`."""
    return Path(os.environ.get("KUBECONFIG") or STATE / "kubeconfig")


def own_cluster() -> bool:
    """Whether the cluster is the one of `make cluster`, whose parts may be stopped."""
    return kubeconfig() == STATE / "kubeconfig"


def why_no_cluster() -> str | None:
    """Why the product cannot be installed on a cluster here, or None."""
    if os.environ.get("KUBECONFIG"):
        return None if kubeconfig().is_file() else f"KUBECONFIG names {kubeconfig()}, which is not there"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "the test cluster needs root on Debian or Ubuntu; or give a KUBECONFIG"
    return None


def program(name: str) -> str:
    """A program of the toolchain (`helm`, `kubectl`), else the one in PATH.

    Raises:
        RuntimeError: there is neither.
    """
    built = sorted(CACHE.glob(f"*/bin/{name}"), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if built else shutil.which(name)
    if found is None:
        raise RuntimeError(f"there is no {name}: run `make cluster` once, or install it")
    return found


async def run(*command: str, stdin: bytes | None = None) -> str:
    """Run a program against the cluster and return its output.

    Raises:
        RuntimeError: it failed; the message is what it said.
    """
    process = await asyncio.create_subprocess_exec(
        program(command[0]),
        *command[1:],
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig())},
    )
    out, err = await process.communicate(stdin)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])}: {err.decode().strip() or out.decode().strip()}")
    return out.decode()


async def kubectl(*arguments: str) -> str:
    """`kubectl` against the cluster; its output."""
    return await run("kubectl", *arguments)


async def objects(*arguments: str) -> list[dict[str, Any]]:
    """The items that `kubectl get` finds."""
    items: list[dict[str, Any]] = json.loads(await kubectl("get", *arguments, "--output", "json"))["items"]
    return items


async def apply(*things: dict[str, Any], namespace: str = "default") -> None:
    """`kubectl apply` of these objects."""
    manifest = {"apiVersion": "v1", "kind": "List", "items": list(things)}
    await run("kubectl", "apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest).encode())


async def node_address() -> str:
    """The address of the cluster's first node; of the cluster of `make cluster` it is this machine's."""
    nodes = await objects("nodes")
    return next(str(one["address"]) for one in nodes[0]["status"]["addresses"] if one["type"] == "InternalIP")


@dataclass
class Installed:
    """An installed release.

    Attributes:
        url: the gateway's address, from this machine.
        namespace: of the platform's pods.
        sandboxes: namespace of the sandboxes.
    """

    url: str
    api_key: str
    release: str
    namespace: str
    sandboxes: str

    def environment(self) -> dict[str, str]:
        """See ``Product.environment``."""
        return {"ROLLBOX_URL": self.url, "ROLLBOX_API_KEY": self.api_key}

    async def signing_key(self) -> bytes:
        """See ``Product.signing_key``."""
        name = f"{self.release}-signing-key"
        data = json.loads(await kubectl("get", "secret", name, "-n", self.namespace, "-o", "json"))["data"]
        return next(key for key in map(base64.b64decode, data.values()) if b"PRIVATE" in key)

    async def controlplanes(self) -> list[str]:
        """See ``Product.controlplanes``: its pods that are in service, where their addresses lead to them."""
        if not own_cluster():
            return [self.url]
        pods = [pod for pod in await self.component("controlplane") if "deletionTimestamp" not in pod["metadata"]]
        return [f"http://{pod['status']['podIP']}:8081" for pod in pods if _is_ready(pod)]

    async def upgrade(self, *values: str) -> None:
        """`helm upgrade` with these values over the ones in use."""
        await run(*_helm("upgrade", self.release, self.namespace), "--reuse-values", *_set(values))

    async def rollback(self) -> None:
        """`helm rollback` to the release before."""
        wait = ("--wait", "--timeout", INSTALL_TIMEOUT)
        await run("helm", "rollback", self.release, "--namespace", self.namespace, *wait)

    async def component(self, name: str) -> list[dict[str, Any]]:
        """The platform's pods of one component (`gateway`, `controlplane`, `redis`, ...)."""
        return await objects("pods", "-n", self.namespace, "-l", f"app.kubernetes.io/component={name}")

    async def pods(self, component: str) -> list[str]:
        """The names of these pods, without those on their way out, which linger for seconds after an upgrade."""
        found = [pod["metadata"] for pod in await self.component(component)]
        return [pod["name"] for pod in found if "deletionTimestamp" not in pod]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


@contextlib.asynccontextmanager
async def installed(release: str = RELEASE, *values: str) -> AsyncIterator[Installed]:
    """Installs the chart with two values and what the caller adds; uninstalls it and checks that nothing is left.

    Raises:
        RuntimeError: Helm's own words, or what was left behind.
    """
    namespace, sandboxes, api_key = release, f"{release}-sandboxes", f"rbx_{secrets.token_hex(16)}"
    print(f"installing {release} ...", file=sys.stderr, flush=True)
    chosen = (f"images.registry={REGISTRY}", f"apiKeys.{OWNER}={api_key}", *values)
    exact = ("--values", str(CHART_VALUES)) if CHART_VALUES.is_file() else ()
    try:
        await run(*_helm("upgrade", release, namespace), "--install", "--create-namespace", *exact, *_set(chosen))
        yield Installed(await _address(release, namespace), api_key, release, namespace, sandboxes)
    finally:
        await run("helm", "uninstall", release, "--namespace", namespace, "--wait", "--timeout", INSTALL_TIMEOUT)
        await kubectl("delete", "namespace", namespace, "--wait=true", "--timeout=120s")
    if left := await _left(release):
        raise RuntimeError(f"uninstalling left {left}")


def _helm(verb: str, release: str, namespace: str) -> tuple[str, ...]:
    wait = ("--wait", "--timeout", INSTALL_TIMEOUT)
    return ("helm", verb, release, str(CHART), "--namespace", namespace, *wait)


def _set(values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


async def _address(release: str, namespace: str) -> str:
    service = json.loads(await kubectl("get", "service", f"{release}-gateway", "-n", namespace, "-o", "json"))
    return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"


async def _left(release: str) -> list[str]:
    label = f"app.kubernetes.io/instance={release}"
    found = await objects(",".join(LEAVES_NONE_OF), "--all-namespaces", "-l", label)
    namespaces = [one for one in await objects("namespaces") if one["metadata"]["name"].startswith(release)]
    return [f"{one['kind']} {one['metadata']['name']}" for one in (*found, *namespaces)]
