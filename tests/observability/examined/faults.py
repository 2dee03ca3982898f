"""What breaks what the doctor looks at, while a block runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.cluster.layout import ETC
from tests.e2e.test_policies_are_tried import everything_allowed
from tests.observability.firing.fault import SMALL
from tests.observability.firing.site import Site
from tests.support.faults import standing_still
from tests.support.images import IMAGE
from tests.support.installed import apply, kubectl, objects, run
from tests.support.played_nodes import TAINT
from tests.support.waiting import until

BEHIND = timedelta(seconds=30)
CLOCKLESS = "no-clock"
STRANGE = "10.9.9.9"
CGROUPS = Path("/sys/fs/cgroup")
# Both hierarchies have one of them.
LIMIT_FILES = ("memory.limit_in_bytes", "memory.max")
RENEWS_EVERY_S = 1.0


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        words: what was done.
        check: the beginning of the name of the check that must find it.
        inject: while its block runs, the fault is there.
        status: with which the doctor exits: 0 where sandboxes can be used all the same.
    """

    words: str
    check: str
    inject: Callable[[Site], AbstractAsyncContextManager[None]]
    status: int = 1


@asynccontextmanager
async def mirror_silent(site: Site) -> AsyncIterator[None]:
    """The mirror answers nothing."""
    with standing_still(await site.process("mirror", "rollbox-mirror")):
        await until(lambda: _not_ready(site, "mirror"), 60)
        yield


@asynccontextmanager
async def dns_silent(site: Site) -> AsyncIterator[None]:
    """The DNS of sandboxes answers nothing."""
    with standing_still(await site.process("dns", "coredns")):
        yield


@contextlib.contextmanager
def _set_for_gvisor(old: str, new: str) -> Iterator[None]:
    """A setting of gVisor that the sandboxes have which start meanwhile."""
    settings = ETC / "runsc.toml"
    was = settings.read_text()
    settings.write_text(was.replace(old, new))
    try:
        yield
    finally:
        settings.write_text(was)


@asynccontextmanager
async def platform_slow(site: Site) -> AsyncIterator[None]:
    """Sandboxes that start have the platform ptrace."""
    del site
    with _set_for_gvisor('platform = "systrap"', 'platform = "ptrace"'):
        yield


@asynccontextmanager
async def setuid_ignored(site: Site) -> AsyncIterator[None]:
    """Setuid programs change no user, as by gVisor's default."""
    del site
    with _set_for_gvisor('allow-suid = "true"', 'allow-suid = "false"'):
        yield


@asynccontextmanager
async def writes_uncounted(site: Site) -> AsyncIterator[None]:
    """Nothing of gVisor is in front of images that would count what is written."""
    del site
    with _set_for_gvisor("[runsc_config]\n", '[runsc_config]\n  overlay2 = "none"\n'):
        yield


async def _not_ready(site: Site, component: str) -> bool:
    await asyncio.sleep(0.5)
    pods = await site.stack.component(component)
    return any(
        one["type"] == "Ready" and one["status"] == "False" for pod in pods for one in pod["status"]["conditions"]
    )


@asynccontextmanager
async def _replaced(kind: str, name: str, new: dict[str, Any] | None) -> AsyncIterator[None]:
    """An object of the cluster that is gone, or another one; afterwards it is as it was."""
    was = json.loads(await kubectl("get", kind, name, "-o", "json"))
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        was["metadata"].pop(field, None)
    await kubectl("delete", kind, name)
    try:
        if new is not None:
            await apply({**was, **new})
        yield
    finally:
        await kubectl("delete", kind, name, "--ignore-not-found")
        await apply(was)


def rights_short(site: Site) -> AbstractAsyncContextManager[None]:
    """The control plane has lost its ClusterRole."""
    return _replaced("clusterrolebinding", f"{site.stack.namespace}-{site.stack.release}-controlplane", None)


def not_gvisor(site: Site) -> AbstractAsyncContextManager[None]:
    """The RuntimeClass of sandboxes leads to runc."""
    del site
    return _replaced("runtimeclass", "gvisor", {"handler": "runc"})


@asynccontextmanager
async def half_rolled(site: Site) -> AsyncIterator[None]:
    """A rollout of the gateway does not come to its end: nobody has pushed the image."""
    deployment = ("-n", site.stack.namespace, f"deployment/{site.stack.release}-gateway")
    await kubectl("set", "image", *deployment, "gateway=localhost:5000/rollbox/gateway:not-pushed")
    try:
        yield
    finally:
        await kubectl("rollout", "undo", *deployment)
        await kubectl("rollout", "status", *deployment, "--timeout=120s")


@asynccontextmanager
async def strange_name(site: Site) -> AsyncIterator[None]:
    """A sandbox's name says an address that is not its own, too."""
    async with await site.client.create(IMAGE, **SMALL) as sandbox:
        (pod,) = [
            one for one in await objects("pods", "-n", site.stack.sandboxes) if one["metadata"]["name"] == sandbox.id
        ]
        name = f"strange-{sandbox.id}"
        about = {"name": name, "labels": {"kubernetes.io/service-name": pod["spec"]["subdomain"]}}
        endpoints = [{"addresses": [STRANGE], "hostname": sandbox.id, "conditions": {"ready": True}}]
        slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
        await apply({**slices, "metadata": about, "endpoints": endpoints}, namespace=site.stack.sandboxes)
        try:
            yield
        finally:
            await kubectl("delete", "endpointslice", name, "-n", site.stack.sandboxes)


@asynccontextmanager
async def clock_behind(site: Site) -> AsyncIterator[None]:
    """A node whose clock is half a minute behind: no machine is behind it, but a kubelet's lease."""
    del site
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": CLOCKLESS}, "spec": {"taints": [TAINT]}}
    await apply(node)
    renewing = asyncio.create_task(_renewed_late())
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing
        await kubectl("delete", "node", CLOCKLESS, "--timeout=30s")
        await kubectl("delete", "lease", CLOCKLESS, "-n", "kube-node-lease", "--ignore-not-found")


async def _renewed_late() -> None:
    while True:
        at = (datetime.now(UTC) - BEHIND).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": CLOCKLESS, "leaseDurationSeconds": 40, "renewTime": at}
        about = {"name": CLOCKLESS, "namespace": "kube-node-lease"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}
        await apply(lease, namespace="kube-node-lease")
        await asyncio.sleep(RENEWS_EVERY_S)


@asynccontextmanager
async def limits_lifted(site: Site) -> AsyncIterator[None]:
    """The control groups of the doctor's pod lose their limit of memory as soon as it runs."""
    lifting = asyncio.create_task(_lifted(site))
    try:
        yield
    finally:
        lifting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lifting


async def _lifted(site: Site) -> None:
    while True:
        path = ("--raw", f"/api/v1/namespaces/{site.stack.sandboxes}/pods")
        pods = json.loads(await run("kubectl", "get", *path))["items"]
        for pod in pods:
            if pod["metadata"]["name"].endswith("-limits"):
                await asyncio.to_thread(_unlimited, f"pod{pod['metadata']['uid']}")
        await asyncio.sleep(0.05)


def _unlimited(pod: str) -> None:
    # It may end at any moment.
    with contextlib.suppress(OSError):
        roots = [root for base in (CGROUPS, CGROUPS / "memory") for root in (base / "kubepods").glob(f"**/{pod}")]
        # From the outside in: a group may have no more than the one around it.
        for group in [one for root in roots for one in (root, *root.rglob("*/"))]:
            for name in LIMIT_FILES:
                if (group / name).exists():
                    (group / name).write_text("-1" if name.endswith("bytes") else "max")


def policies_open(site: Site) -> AbstractAsyncContextManager[None]:
    """A policy that allows everything stands in for a network plugin that denies nothing."""
    return everything_allowed(site.stack.sandboxes)


@asynccontextmanager
async def egress_gone(site: Site) -> AsyncIterator[None]:
    """Egress has no pod."""
    await site.scale("egress", 0)
    try:
        yield
    finally:
        await site.scale("egress", 1)


@asynccontextmanager
async def api_server_allowed(site: Site) -> AsyncIterator[None]:
    """An exception from private ranges has the API server's address."""
    address = json.loads(await kubectl("get", "service", "kubernetes", "-n", "default", "-o", "json"))["spec"][
        "clusterIP"
    ]
    # Past the preflight, which would refuse it. In the place of the list that is there: Helm adds to none.
    await site.stack.upgrade(f"egress.allowedPrivateCidrs[0]={address}/32", "preflight.enabled=false")
    try:
        yield
    finally:
        await site.stack.rollback()


FAULTS: dict[str, Fault] = {
    "mirror_silent": Fault("the mirror stands still (SIGSTOP)", "parts of ", mirror_silent),
    "rights_short": Fault("the ClusterRoleBinding of the control plane is deleted", "rights of ", rights_short),
    "half_rolled": Fault(
        "a rollout of the gateway is stuck with an image that is nowhere", "versions of ", half_rolled
    ),
    "strange_name": Fault("an EndpointSlice gives a sandbox's name another address", "DNS of ", strange_name),
    "dns_silent": Fault("the DNS of sandboxes stands still (SIGSTOP)", "name server of ", dns_silent),
    "clock_behind": Fault("a node renews its lease with a clock that is 30 s behind", "clocks", clock_behind),
    "limits_lifted": Fault("the limits of memory are taken from the pod's control groups", "limits of ", limits_lifted),
    "not_gvisor": Fault("the RuntimeClass leads to runc", "kernel of ", not_gvisor),
    "platform_slow": Fault("gVisor's settings on the node name the platform ptrace", "platform of ", platform_slow),
    "setuid_ignored": Fault(
        "gVisor's settings on the node lack allow-suid", "setuid programs of ", setuid_ignored, status=0
    ),
    "writes_uncounted": Fault(
        'gVisor\'s settings on the node have `overlay2 = "none"`', "disk limit of ", writes_uncounted, status=0
    ),
    "policies_open": Fault("a policy allows everything", "network policies of ", policies_open),
    "egress_gone": Fault("egress is scaled to no pod", "egress of ", egress_gone),
    "api_server_allowed": Fault(
        "egress.allowedPrivateCidrs has the API server's address", "egress of ", api_server_allowed
    ),
}
