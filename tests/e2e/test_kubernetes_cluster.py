"""The Kubernetes backend passes the suite of all clusters, on a real API server, without a control plane."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc import aio

from controlplane.clock import SystemClock
from controlplane.cluster import Boot, Cluster, Death
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.errors import Problem
from controlplane.lifecycle import SigningKey
from controlplane.model import Range, Sandbox, SandboxSpec
from controlplane.settings import KubernetesSettings
from controlplane.wire import agent_pb2, agent_pb2_grpc
from tests.contract.cluster_suite import BOOT, ClusterSuite
from tests.support import installed
from tests.support.images import ON_CLUSTER, REGISTRY, pushed
from tests.support.waiting import until

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), SystemClock())
GOOD_BOOT = Boot(BOOT.ready_token, KEY.public_text, BOOT.record)
EAT = "held = []\nwhile True: held.append(b'x' * 2**24)"
# A push takes this long on a node that is busy with others.
READY_WITHIN_S = 60
# What the API server knows already is heard within moments; this is for a busy machine.
HEARD_WITHIN_S = 30


@dataclass
class Door:
    """Takes readiness pushes, as a control plane does."""

    url: str
    pushes: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    async def take(self, request: web.Request) -> web.Response:
        self.pushes.put_nowait(await request.json())
        return web.Response(status=204)


@asynccontextmanager
async def door() -> AsyncIterator[Door]:
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    made = Door("")
    app.router.add_route("*", "/{path:.*}", made.take)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", 0).start()
        made.url = f"http://{await own_address()}:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


async def own_address() -> str:
    """The address of this machine that pods reach it by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((await installed.node_address(), 9))
        return str(probe.getsockname()[0])


@pytest.fixture
async def ready() -> AsyncIterator[Door]:
    async with door() as opened:
        yield opened


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace and a RuntimeClass of this name, gone afterwards."""
    reason = installed.why_no_cluster()
    if reason is not None:
        pytest.fail(f"the e2e level cannot run here: {reason}")
    name = f"rollbox-backend-{uuid4().hex[:8]}"
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runsc"}
    with asyncio.Runner() as runner:
        runner.run(installed.kubectl("create", "namespace", name))
        runner.run(installed.run("kubectl", "create", "-f", "-", stdin=json.dumps(runtime).encode()))
        try:
            # Made by a controller; without it the API server takes no pod.
            runner.run(until(lambda: installed.objects("serviceaccounts", "--namespace", name)))
            yield name
        finally:
            runner.run(installed.kubectl("delete", "runtimeclass", name))
            runner.run(installed.kubectl("delete", "namespace", name, "--timeout=90s"))


@pytest.fixture
async def cluster(namespace: str, ready: Door) -> AsyncIterator[KubernetesCluster]:
    async with opened(namespace, ready.url) as one:
        yield one


@asynccontextmanager
async def opened(namespace: str, ready_url: str, **more: Any) -> AsyncIterator[KubernetesCluster]:
    options: dict[str, Any] = {
        "namespace": namespace,
        "installation": "suite",
        "sidecar_image": pushed("sidecar"),
        "ready_url": ready_url,
        "runtime_class": namespace,
        "required_kernel": "gVisor",
        "dns_shards": 16,
        "starts_per_node": 8,
        "priority_class": "",
        "node_selector": {},
        "tolerations": (),
        "image_pull_secrets": (),
        "kubeconfig": installed.kubeconfig(),
        **more,
    }
    async with KubernetesCluster.open(KubernetesSettings(**options)) as one:
        yield one


@pytest.fixture
def spec() -> SandboxSpec:
    return SandboxSpec(image=ON_CLUSTER)


class TestKubernetesCluster(ClusterSuite):
    """See `ClusterSuite`."""

    boot = GOOD_BOOT


async def first_death(cluster: Cluster, within_s: float) -> Death:
    async with aclosing(cluster.watch()) as deaths, asyncio.timeout(within_s):  # type: ignore[type-var]
        one: Death = await anext(deaths)
        return one


async def pushed_by(ready: Door) -> dict[str, Any]:
    async with asyncio.timeout(READY_WITHIN_S):
        return await ready.pushes.get()


async def test_a_sandbox_gets_ready_in_the_isolation_that_was_promised_and_its_deleted_pod_is_a_death(
    cluster: KubernetesCluster, spec: SandboxSpec, ready: Door, namespace: str
) -> None:
    # Nodes that are to be avoided take what no other ones do.
    nodes = [str(one["metadata"]["name"]) for one in await installed.machines()]
    await cluster.start("sb-real1", spec, replace(GOOD_BOOT, avoid=nodes))
    try:
        push = await pushed_by(ready)
        assert push["sandbox_id"] == "sb-real1"
        assert push.get("failure") is None
        cluster.check_kernel(push["kernel"])
        (seen,) = await cluster.list()
        assert seen.death is None
        assert seen.address in (None, push["address"])
        async with aclosing(cluster.placements()) as placements, asyncio.timeout(HEARD_WITHIN_S):  # type: ignore[type-var]
            while (one := await anext(placements)).sandbox_id != "sb-real1":
                pass
        assert one.node in nodes
        assert cluster.placement("sb-real1") == one
        await installed.kubectl("delete", "pod", "sb-real1", "--namespace", namespace, "--wait=false")
        death = await first_death(cluster, HEARD_WITHIN_S)
        assert (death.sandbox_id, death.cause) == ("sb-real1", "sandbox_lost")
        assert "deleted from outside" in death.detail
    finally:
        await cluster.stop("sb-real1")
    assert await cluster.list() == []


async def test_what_eats_all_memory_is_told_from_what_is_lost(
    cluster: KubernetesCluster, spec: SandboxSpec, ready: Door
) -> None:
    small = Range(request=64 << 20, limit=128 << 20)
    await cluster.start("sb-real6", spec.model_copy(update={"memory_bytes": small}), GOOD_BOOT)
    try:
        push = await pushed_by(ready)
        eating = asyncio.create_task(run(push["address"], "sb-real6", ["python3", "-c", EAT]))
        death = await first_death(cluster, READY_WITHIN_S)
        assert (death.sandbox_id, death.cause) == ("sb-real6", "oom_killed")
        # Nobody answers this call any more: who waits in a gateway is told by the route feed.
        eating.cancel()
        await asyncio.wait([eating])
    finally:
        await cluster.stop("sb-real6")


async def run(address: str, sandbox_id: str, argv: list[str]) -> object:
    """A command in the sandbox, without a gateway; what came of it, or what came instead."""
    owner = Sandbox(sandbox_id, "o", SandboxSpec(image="a"), 1, SystemClock().now_ms() + 60_000, "f")
    credential = (("authorization", f"Bearer {KEY.token(owner).text}"),)
    async with aio.insecure_channel(address.removeprefix("http://")) as channel:
        agent = agent_pb2_grpc.AgentStub(channel)  # type: ignore[no-untyped-call]
        try:
            return await agent.Exec(agent_pb2.ExecRequest(exec_id="e", argv=argv), timeout=60, metadata=credential)
        except aio.AioRpcError as error:
            return error


async def test_a_sidecar_that_refuses_its_settings_is_heard(cluster: KubernetesCluster, spec: SandboxSpec) -> None:
    await cluster.start("sb-real3", spec, BOOT)
    try:
        death = await first_death(cluster, READY_WITHIN_S)
        assert "ROLLBOX_SIDECAR_TOKEN_PUBLIC_KEY" in death.detail
    finally:
        await cluster.stop("sb-real3")


async def test_an_image_that_is_nowhere_is_told_within_seconds(cluster: KubernetesCluster) -> None:
    await cluster.start("sb-real4", SandboxSpec(image=f"{REGISTRY}/nothing:1"), GOOD_BOOT)
    try:
        death = await first_death(cluster, READY_WITHIN_S)
        assert (death.sandbox_id, death.cause) == ("sb-real4", "image_not_found")
    finally:
        await cluster.stop("sb-real4")


async def test_what_no_node_takes_is_told_at_the_deadline(namespace: str, ready: Door, spec: SandboxSpec) -> None:
    async with opened(namespace, ready.url) as cluster:
        wish = spec.model_copy(update={"node_selector": {"rollbox.dev/no-such": "node"}, "start_timeout_ms": 3_000})
        with pytest.raises(Problem, match="no-such"):
            cluster.check(wish)
        await cluster.start("sb-real5", wish, GOOD_BOOT)
        try:
            death = await first_death(cluster, HEARD_WITHIN_S)
            assert (death.sandbox_id, death.cause) == ("sb-real5", "capacity_unavailable")
            assert "node" in death.detail
        finally:
            await cluster.stop("sb-real5")


async def test_a_namespace_quota_is_named(cluster: KubernetesCluster, spec: SandboxSpec, namespace: str) -> None:
    await installed.kubectl("create", "quota", "tight", "--hard=pods=0", "--namespace", namespace)
    try:
        async with asyncio.timeout(30):
            refused = await refusal(cluster, spec)
    finally:
        await installed.kubectl("delete", "quota", "tight", "--namespace", namespace)
    assert refused.code == "capacity_unavailable"
    assert "tight" in refused.detail


async def refusal(cluster: Cluster, spec: SandboxSpec) -> Problem:
    """The first refused start; a quota counts a moment after it was made."""
    for number in itertools.count():
        try:
            await cluster.start(f"sb-quota{number}", spec, GOOD_BOOT)
        except Problem as problem:
            return problem
        await cluster.stop(f"sb-quota{number}")
    raise AssertionError


async def test_no_runtime_class_is_no_cluster(namespace: str, ready: Door) -> None:
    with pytest.raises(Problem, match="no RuntimeClass nowhere") as caught:
        async with opened(namespace, ready.url, runtime_class="nowhere"):
            pass
    assert caught.value.code == "isolation_missing"
