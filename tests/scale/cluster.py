"""A cluster without a kubelet: etcd, API server, controllers and scheduler are real, KWOK plays the nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.processes import Processes
from tests.cluster import certificates, options
from tests.cluster.kubectl import answers, kubectl
from tests.cluster.layout import API_PORT, KUBECONFIG, STATE
from tests.cluster.toolchain import program
from tests.support import helm

STAGES = Path(__file__).parent / "files/stages.yaml"
POD_CIDR = "10.128.0.0/9"
RELEASE = "rollbox"
SANDBOXES = f"{RELEASE}-sandboxes"
# Of each zone one process of KWOK's is all kubelets: when it dies its nodes fall silent.
LABEL_ZONE = "topology.kubernetes.io/zone"
# Of the chart, besides its defaults. Nodes of 256 cores start more than eight at a time; and starts that have no node
# yet count for the busiest one, so the default bounds a fill to eight starts in the time that a placement takes.
VALUES: list[str] = ["controlplane.startsPerNode=64", "controlplane.startsInFlight=256"]
# What runs in a cluster and is played by processes here, or has nothing to do here.
NOT_APPLIED = {"Deployment", "StatefulSet", "DaemonSet", "Job", "Pod", "HorizontalPodAutoscaler", "Secret"}


async def start(parts: Processes, *, names: bool = True) -> None:
    """Start it, with the chart's objects and no node.

    Args:
        parts: where its processes go.
        names: whether sandboxes have names in DNS: the headless Services, whose endpoints the controllers keep.
    """
    await asyncio.to_thread(_prepare)
    await parts.start("etcd", (program("etcd", "etcd"), *options.flags(options.ETCD)), {})
    await _up(parts, "etcd", "http://127.0.0.1:2379/health")
    await _kubernetes(parts, "kube-apiserver", options.apiserver(), API_PORT, "readyz")
    controllers = {**options.controllers(), "cluster-cidr": POD_CIDR, "node-cidr-mask-size": "23"}
    await _kubernetes(parts, "kube-controller-manager", controllers, 10257, "healthz")
    await _kubernetes(parts, "kube-scheduler", options.served("scheduler"), 10259, "healthz")
    await asyncio.to_thread(_apply_chart, names=names)


async def start_nodes(parts: Processes, zone: str, names: Sequence[str], pods: int) -> None:
    """Add nodes to a zone, and their kubelets if none of its nodes had any."""
    await asyncio.to_thread(_add_nodes, zone, names, pods)
    if f"kwok-{zone}" not in parts.parts:
        selector = f"--manage-nodes-with-label-selector={LABEL_ZONE}={zone}"
        flags = ("--kubeconfig", str(KUBECONFIG), "--config", str(STAGES), selector, "--node-lease-duration-seconds=40")
        address = f"--server-address=127.0.0.1:{10400 + ord(zone)}"
        await parts.start(f"kwok-{zone}", (program("kwok", "kwok"), *flags, address), {})
    await asyncio.to_thread(kubectl, "wait", "node", *names, "--for=condition=Ready", "--timeout=60s", timeout=90.0)


def account(folder: Path) -> Path:
    """A kubeconfig with the token of the control plane's own account: the API server treats it as in a cluster."""
    words = ("create", "token", f"{RELEASE}-controlplane", "-n", RELEASE, "--duration=24h")
    given = json.loads(KUBECONFIG.read_text())
    given["users"][0]["user"] = {"token": kubectl(*words).strip()}
    path = folder / "controlplane.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(given))
    return path


def plane_settings() -> dict[str, str]:
    """The chart's own settings of a control plane: those that do not name a file, a Secret or another part."""
    (container,) = _deployment("controlplane")["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: str(one.get("value", "")) for one in container["env"]}
    return {name: value for name, value in given.items() if value and "$(" not in value and not value.startswith("/")}


def room(pods: int) -> dict[str, str]:
    """What a node has, with place for so many pods."""
    return {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "8Ti", "pods": str(pods)}


def manifest_of(name: str) -> dict[str, Any]:
    """An object of the simulated cluster's, such as `pod/NAME`."""
    return dict(json.loads(kubectl("get", name, "-n", SANDBOXES, "-o", "json")))


def _prepare() -> None:
    STATE.mkdir(parents=True)
    certificates.issue()
    # What the chart does not say of most of its objects.
    given = json.loads(KUBECONFIG.read_text())
    given["contexts"][0]["context"]["namespace"] = RELEASE
    KUBECONFIG.write_text(json.dumps(given))


async def _kubernetes(parts: Processes, name: str, flags: dict[str, str], port: int, path: str) -> None:
    await parts.start(name, (program("kubernetes", name), *options.flags(flags)), {})
    await _up(parts, name, f"https://127.0.0.1:{port}/{path}")


async def _up(parts: Processes, name: str, url: str) -> None:
    async def up() -> bool:
        return await asyncio.to_thread(answers, url)

    await parts.until(name, up)


def _chart() -> list[dict[str, Any]]:
    return helm.render(*VALUES, release=RELEASE, namespace=RELEASE)


def _deployment(part: str) -> dict[str, Any]:
    return helm.named(_chart(), "Deployment", f"{RELEASE}-{part}")


def _apply_chart(*, names: bool) -> None:
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((helm.CHART / "files/crds").glob("*.yaml"))]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE}}
    _apply([namespace, *definitions])
    hooks = "helm.sh/hook"
    found = [one for one in _chart() if hooks not in one["metadata"].get("annotations", {})]
    _apply([one for one in found if one["kind"] == "Namespace"])
    left_out = NOT_APPLIED if names else NOT_APPLIED | {"Service"}
    _apply([one for one in found if one["kind"] not in left_out])


def _apply(manifests: Sequence[dict[str, Any]]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    kubectl("apply", "--server-side", "-f", "-", given=json.dumps(listed))


def _add_nodes(zone: str, names: Sequence[str], pods: int) -> None:
    has = room(pods)
    for name in names:
        labels = {LABEL_ZONE: zone, "kubernetes.io/hostname": name}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        kubectl("create", "-f", "-", given=json.dumps(node))
        status = {"status": {"capacity": has, "allocatable": has, "nodeInfo": {"architecture": "amd64"}}}
        kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
