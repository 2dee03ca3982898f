"""The chart on a real cluster, installed the way its README says; gone without a trace afterwards."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.layout import cni
from tests.support.api_lists import listed
from tests.support.images import CHART_VALUES, REGISTRY

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "helm"

STATE = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "rollbox" / "cluster"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rollbox" / "cluster"
# Owners of the tests, one for each process that runs some: each sees its own sandboxes and has a quota of its own.
OWNERS = ("tests", "tests-1", "tests-2", "tests-3")
# Of another owner, that is no operator.
STRANGER = "stranger"
RELEASE = os.environ.get("ROLLBOX_TEST_RELEASE", "rollbox")
INSTALL_TIMEOUT = "5m"
# Label and taint of nodes that are objects alone (`played_nodes`).
PLAYED = "rollbox-test/played"
# What the parts ask for by default is the place of forty sandboxes on two cores.
ASKS_LITTLE = tuple(
    f"{part}.resources.requests.cpu=5m" for part in ("gateway", "controlplane", "operator", "redis", "dns")
)
# Values of a further release: the runtime class is there, and the checks of its nodes have passed.
# Its parts ask for next to nothing: what three releases ask for by default leaves sandboxes no room on two cores.
BESIDE_ANOTHER = (
    "runtimeClass.create=false",
    "preflight.enabled=false",
    # Whatever default class of volumes the cluster has at the moment: one test makes one.
    "redis.persistence.enabled=false",
    *ASKS_LITTLE,
)
# For what has nothing to do with how many replicas there are.
ONE_OF_EACH = ("controlplane.replicas=1", "gateway.replicas=1", "gateway.autoscaling.enabled=false", "dns.replicas=1")
LEAVES_NONE_OF = (
    "clusterroles",
    "clusterrolebindings",
    "priorityclasses",
    "runtimeclasses",
    "pods",
    "services",
    "secrets",
    "configmaps",
    "networkpolicies",
    "persistentvolumeclaims",
    "jobs",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)


def kubeconfig() -> Path:
    """The given cluster's, else the one of `make cluster`."""
    return Path(os.environ.get("KUBECONFIG") or STATE / "kubeconfig")


def own_cluster() -> bool:
    """Whether the cluster is the one of `make cluster`, whose parts may be stopped."""
    return kubeconfig() == STATE / "kubeconfig"


def ignores_policies() -> bool:
    """Whether the network of the cluster of `make cluster` is the bridge, which takes policies and enforces none."""
    return own_cluster() and cni() == "bridge"


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
        # Helm tells its own words in the one, and those of its hooks in the other.
        said = "\n".join(filter(None, (err.decode().strip(), out.decode().strip())))
        raise RuntimeError(f"{' '.join(command[:6])}: {said}")
    return out.decode()


async def kubectl(*arguments: str) -> str:
    """`kubectl` against the cluster; its output."""
    return await run("kubectl", *arguments)


async def objects(*arguments: str) -> list[dict[str, Any]]:
    """The items that `kubectl get` with these words finds: lists of the kinds that ``api_lists`` knows."""
    return await listed(kubeconfig(), arguments)


async def apply(*things: dict[str, Any], namespace: str = "default") -> None:
    """`kubectl apply` of these objects."""
    manifest = {"apiVersion": "v1", "kind": "List", "items": list(things)}
    await run("kubectl", "apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest).encode())


async def machines() -> list[dict[str, Any]]:
    """The nodes that machines are behind: other tests have nodes that are objects alone."""
    return await objects("nodes", "-l", f"!{PLAYED}")


async def node_address() -> str:
    """The address of the cluster's first node; of the cluster of `make cluster` it is this machine's."""
    nodes = await machines()
    return next(str(one["address"]) for one in nodes[0]["status"]["addresses"] if one["type"] == "InternalIP")


@dataclass
class Installed:
    """An installed release.

    Attributes:
        url: the gateway's address, from this machine.
        api_key: of `owner`, an operator.
        strangers_key: of another owner, that is no operator.
        namespace: of the platform's pods.
        sandboxes: namespace of the sandboxes.
    """

    url: str
    api_key: str
    owner: str
    strangers_key: str
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

    async def test(self) -> set[str]:
        """`helm test`; the names of the hooks that succeeded.

        Raises:
            RuntimeError: one failed; Helm's words and its pod's own.
        """
        told = await run("helm", "test", self.release, "--namespace", self.namespace, "--timeout", INSTALL_TIMEOUT)
        suites = re.findall(r"^TEST SUITE: +(\S+)$.*?^Phase: +(\S+)$", told, re.MULTILINE | re.DOTALL)
        return {name for name, phase in suites if phase == "Succeeded"}

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


@dataclass
class Release:
    """A release of the chart, and the keys that it was installed with.

    Attributes:
        keys: owner -> key.
    """

    name: str
    keys: dict[str, str]

    @classmethod
    def new(cls, name: str = RELEASE) -> Release:
        """One that is not installed yet, with keys of its own."""
        return cls(name, {owner: f"rbx_{secrets.token_hex(16)}" for owner in (*OWNERS, STRANGER)})

    async def install(self, *values: str, as_json: tuple[str, ...] = ()) -> None:
        """`helm install`, as the README says, with the tests' owners as operators and what the caller adds.

        Args:
            values: each ``NAME=VALUE``.
            as_json: the same, with values in JSON.

        Raises:
            RuntimeError: Helm's own words.
        """
        print(f"installing {self.name} ...", file=sys.stderr, flush=True)
        operators = (f"controlplane.operators[{n}]={owner}" for n, owner in enumerate(OWNERS))
        keys = (f"apiKeys.{owner}={key}" for owner, key in self.keys.items())
        risk = ("networkPolicies.acceptUnenforced=true",) if ignores_policies() else ()
        chosen = (f"images.registry={REGISTRY}", *keys, *operators, *risk, *values)
        exact = ("--values", str(CHART_VALUES)) if CHART_VALUES.is_file() else ()
        helm = _helm("upgrade", self.name, self.name)
        given = [part for value in as_json for part in ("--set-json", value)]
        await run(*helm, "--install", "--create-namespace", *exact, *_set(chosen), *given)

    async def uninstall(self) -> None:
        """`helm uninstall`.

        Raises:
            RuntimeError: Helm's own words, or what was left behind.
        """
        namespace = self.name
        wait = ("--wait", "--timeout", INSTALL_TIMEOUT)
        # What a run that was cut off has left may be half of it.
        await run("helm", "uninstall", self.name, "--namespace", namespace, "--ignore-not-found", *wait)
        await kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=true", "--timeout=120s")
        if left := await _left(self.name):
            raise RuntimeError(f"uninstalling left {left}")

    async def as_seen_by(self, owner: str) -> Installed:
        """The installed release, with this owner's key."""
        url = await address(self.name, self.name)
        keys = (self.keys[owner], owner, self.keys[STRANGER])
        return Installed(url, *keys, self.name, self.name, f"{self.name}-sandboxes")


@contextlib.asynccontextmanager
async def installed(name: str = RELEASE, *values: str, as_json: tuple[str, ...] = ()) -> AsyncIterator[Installed]:
    """A release for the block; uninstalled afterwards, and nothing of it is left.

    Args:
        name: of the release.
        values: each ``NAME=VALUE``.
        as_json: the same, with values in JSON.

    Raises:
        RuntimeError: Helm's own words, or what was left behind.
    """
    release = Release.new(name)
    try:
        await release.install(*values, as_json=as_json)
        yield await release.as_seen_by(OWNERS[0])
    finally:
        await release.uninstall()


def _helm(verb: str, release: str, namespace: str) -> tuple[str, ...]:
    wait = ("--wait", "--timeout", INSTALL_TIMEOUT)
    return ("helm", verb, release, str(CHART), "--namespace", namespace, *wait)


def _set(values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


async def address(release: str, namespace: str, component: str = "gateway") -> str:
    """The address of a component's Service, as machines of the cluster reach it."""
    service = json.loads(await kubectl("get", "service", f"{release}-{component}", "-n", namespace, "-o", "json"))
    return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"


async def _left(release: str) -> list[str]:
    label = f"app.kubernetes.io/instance={release}"
    found = await objects(",".join(LEAVES_NONE_OF), "--all-namespaces", "-l", label)
    # No more than these: a release's name may begin with another's.
    own = (release, f"{release}-sandboxes")
    namespaces = [one for one in await objects("namespaces") if one["metadata"]["name"] in own]
    return [f"{one['kind']} {one['metadata']['name']}" for one in (*found, *namespaces)]
