"""The node agent on a real node: it tells and pulls images, and ends gVisor kernels that the kubelet cannot end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import signal
import tarfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import NodeImage, NodeStore
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.cluster.kubernetes.node_agents import NearNodes, NodeAgents, NodeImages
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.errors import Problem
from controlplane.images import Credentials, Keyring, StoreLimit
from controlplane.lifecycle.housekeeping.cleanup import NodeCleanup
from controlplane.lifecycle.housekeeping.needed import Needs
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.settings import NodeAgentSettings
from controlplane.store import MemoryStore
from controlplane.telemetry import Metrics
from controlplane.wire import node_pb2
from rollbox import Client, Sandbox
from tests.cluster.layout import PAUSE_IMAGE
from tests.support.faults import signal_kernel
from tests.support.images import IMAGE, REGISTRY
from tests.support.installed import Installed, kubectl, objects, own_cluster
from tests.support.odd_registry import PASSWORD, USER, odd_registry
from tests.support.release import AGENTS
from tests.support.virtual_time import VirtualClock
from tests.support.waiting import until

pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.skipif(not own_cluster(), reason="where a given cluster has containerd's socket is not known"),
]
# The node has two minutes to stop one, and the operator looks every half.
KILLED_WITHIN_S = 300.0
FILE_BYTES = 8 << 20
# Until it is cancelled.
TWO_BUSY = "while :; do :; done & while :; do :; done"
# Runs in a control plane's pod: with its settings, its certificate, its rights and from its place in the network.
FROM_THE_CONTROL_PLANE = """
import asyncio, json, os
from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_agents import NearNodes, NodeAgents, NodeImages
from controlplane.images import Keyring
from controlplane.settings import Settings

async def keyring():
    return Keyring()

async def main():
    settings = Settings.from_environment(os.environ).backend.node_agents
    async with KubernetesClient.connect(None) as client, NodeAgents.open(client, settings) as agents:
        nodes, clock = (lambda: list(agents._addresses.by_node)), SystemClock()
        near = NearNodes(None, lambda: [], clock)
        found = await NodeImages(agents, keyring, nodes, near, handler=lambda _: "", needed="none").all()
        print(json.dumps([name for one in found for name in one.names]))

asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def with_agents(stack: Installed) -> Iterator[None]:
    """The release has node agents while these tests run; the one of a process of its own always has."""
    with asyncio.Runner() as runner:
        there = runner.run(stack.component("node"))
        runner.run(stack.upgrade(*AGENTS)) if not there else None
        yield
        runner.run(stack.upgrade("nodeAgent.enabled=false")) if not there else None


@pytest.fixture(scope="module", autouse=True)
def hung(stack: Installed, with_agents: None) -> Iterator[str]:
    """A sandbox whose kernel stands still, deleted before the first test: its node has minutes to stop it."""

    async def made() -> str:
        async with Client(stack.url, stack.api_key) as client:
            sandbox = await client.create(IMAGE, memory="128Mi")
            await signal_kernel(sandbox.id, signal.SIGSTOP)
            await sandbox.delete()
            return sandbox.id

    with asyncio.Runner() as runner:
        sandbox_id = runner.run(made())
        yield sandbox_id
        # The agent ends it in one of these tests; where that one is not chosen it would stand still for ever.
        with contextlib.suppress(AssertionError):
            runner.run(signal_kernel(sandbox_id, signal.SIGCONT))


async def pod(stack: Installed) -> dict[str, Any]:
    (found,) = await stack.component("node")
    return found


@pytest.fixture
async def agents(stack: Installed, tmp_path: Path) -> AsyncIterator[NodeAgents]:
    """The client of the control plane, here, with its certificate."""
    name = f"{stack.release}-node"
    data = json.loads(await kubectl("get", "secret", f"{name}-client", "-n", stack.namespace, "-o", "json"))["data"]
    for file, text in data.items():
        (tmp_path / file).write_bytes(base64.b64decode(text))
    addresses = Addresses()
    chosen = ("-n", stack.namespace, "-l", f"kubernetes.io/service-name={name}")
    addresses.replace(await objects("endpointslices", *chosen))
    settings = NodeAgentSettings(stack.namespace, name, f"node.{stack.release}.{stack.namespace}", tmp_path)
    made = NodeAgents(addresses, settings)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def node(stack: Installed) -> str:
    return str((await pod(stack))["spec"]["nodeName"])


async def listed(agents: NodeAgents, node: str) -> dict[str, node_pb2.Image]:
    return {name: one for one in await agents.images(node) for name in (*one.names, *one.digests)}


async def test_images_are_told_with_what_uses_them(agents: NodeAgents, node: str, shared: Sandbox) -> None:
    assert (await shared.exec("true")).ok
    images = await listed(agents, node)
    used = images[IMAGE]
    assert used.containers >= 1
    assert used.HasField("last_used_ms")
    assert used.size_bytes > FILE_BYTES
    assert used.id.startswith("sha256:")
    assert all("@sha256:" in name for name in used.digests)
    assert images[PAUSE_IMAGE].pinned


async def test_an_image_is_removed_only_if_nothing_needs_it(agents: NodeAgents, node: str, shared: Sandbox) -> None:
    assert (await shared.exec("true")).ok
    for name in (IMAGE, PAUSE_IMAGE):
        with pytest.raises(Problem) as refused:
            await agents.remove(node, name)
        assert refused.value.code == "conflict", name
    assert IMAGE in await listed(agents, node)


async def _podman(*words: str, stdin: bytes | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        "podman", *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate(stdin)
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


async def made_image(folder: Path) -> str:
    """An image that no node has seen, by its digest."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        file = tarfile.TarInfo("random")
        file.size = FILE_BYTES
        archive.addfile(file, io.BytesIO(os.urandom(FILE_BYTES)))
    name = f"{REGISTRY}/prefetched:{os.urandom(6).hex()}"
    await _podman("import", "--quiet", "-", name, stdin=layer.getvalue())
    try:
        await _podman("push", "--quiet", "--tls-verify=false", "--digestfile", str(folder / "digest"), name)
    finally:
        await _podman("rmi", name)
    return f"{name.rpartition(':')[0]}@{(folder / 'digest').read_text()}"


@pytest.fixture
async def fresh_image(tmp_path: Path) -> str:
    """One of those."""
    return await made_image(tmp_path)


async def test_an_image_is_pulled_ahead_and_removed_again(agents: NodeAgents, node: str, fresh_image: str) -> None:
    assert fresh_image not in await listed(agents, node)
    progress = [one async for one in agents.prefetch(node, fresh_image, None, "")]
    last = progress[-1]
    assert last.state == node_pb2.PrefetchProgress.HERE
    assert last.done_bytes == last.total_bytes > FILE_BYTES
    assert fresh_image in await listed(agents, node)
    assert await agents.remove(node, fresh_image)
    assert fresh_image not in await listed(agents, node)
    assert not await agents.remove(node, fresh_image)


async def test_what_came_for_sandboxes_alone_is_known(
    stack: Installed, client: Client, agents: NodeAgents, node: str, tmp_path: Path
) -> None:
    began_ms = round(time.time() * 1000) - 1
    ahead, started = await made_image(tmp_path), await made_image(tmp_path)
    why = await _pulled(agents, node, ahead)
    assert why is None, why
    sandbox = await client.create(started)

    async def known() -> bool:
        there = await listed(agents, node)
        return all(there[name].brought_ms >= began_ms for name in (ahead, started))

    # The agent hears of the container in the moment after.
    await until(known)
    with pytest.raises(Problem) as refused:
        await agents.remove(node, started, brought=True)
    assert refused.value.code == "conflict"
    await sandbox.delete(wait=True)
    # What the kubelet has pulled for a pod that is no sandbox's.
    (name,) = [one["image"] for one in (await pod(stack))["spec"]["containers"]]
    there = await listed(agents, node)
    assert not there[name].HasField("brought_ms")
    with pytest.raises(Problem, match="by somebody else|used by") as refused:
        await agents.remove(node, name, brought=True)
    assert refused.value.code == "conflict"

    async def removed(one: str) -> bool:
        # The kubelet removes containers a moment after their pod has gone.
        with contextlib.suppress(Problem):
            return bool(await agents.remove(node, one, brought=True))
        return False

    for one in (ahead, started):
        await until(partial(removed, one))


class OneNode:
    """The real node, of which only some images are told: others' tests use the rest."""

    def __init__(self, images: NodeImages, told: set[str]) -> None:
        self._real, self._told = images, told

    async def stores(self) -> Sequence[NodeStore]:
        stores = await self._real.stores()
        assert all(one.disk_bytes for one in stores)
        return [replace(found, images=[one for one in found.images if self._told & {*one.names}]) for found in stores]

    async def remove(self, image: NodeImage) -> bool:
        return await self._real.remove(image)


async def test_a_clean_up_removes_what_is_too_much_and_nothing_that_is_used(
    client: Client, agents: NodeAgents, node: str, tmp_path: Path
) -> None:
    idle, used = await made_image(tmp_path), await made_image(tmp_path)
    why = await _pulled(agents, node, idle)
    assert why is None, why
    async with await client.create(used):
        clock = VirtualClock()
        near = NearNodes(None, list, clock)
        images = NodeImages(agents, no_keys, lambda: [node], near, handler=lambda _: "", needed=PAUSE_IMAGE)
        # Nothing that came lately would go.
        clock.now_ms = lambda: round(time.time() * 1000) + 3_600_000  # type: ignore[method-assign]
        store = RecoveringStore(MemoryStore(clock))
        limit = StoreLimit(FILE_BYTES)
        needs = Needs(store, FileDocuments(), Unchanged(), None)
        clean = NodeCleanup(OneNode(images, {idle, used}), needs, limit, clock=clock, metrics=Metrics())

        async def cleaned() -> bool:
            await clean.turn()
            return idle not in await listed(agents, node)

        # A node that does not answer at the moment is looked at again.
        await until(cleaned)
        assert used in await listed(agents, node)
    await until(lambda: gone(agents, node, used))


class Unchanged:
    """Names as they are."""

    def pulled(self, name: str) -> str:
        return name


async def no_keys() -> Keyring:
    return Keyring()


async def gone(agents: NodeAgents, node: str, image: str) -> bool:
    """Whether an image could be removed: its containers are removed in the moments after their sandbox."""
    try:
        await agents.remove(node, image, brought=True)
    except Problem:
        return False
    return True


async def _pulled(agents: NodeAgents, node: str, image: str, credentials: Credentials | None = None) -> Problem | None:
    """Why it was not; None: it was."""
    try:
        async with asyncio.timeout(60):
            async for _ in agents.prefetch(node, image, credentials, ""):
                pass
    except Problem as problem:
        return problem
    return None


async def test_a_prefetch_that_cannot_be_says_why(agents: NodeAgents, node: str) -> None:
    async with odd_registry() as registry:
        expected = {
            f"{REGISTRY}/absent:1": ("image_not_found", "not found"),
            "localhost:1/absent:1": ("image_pull_failed", "the registry was not reached"),
            registry.image("private"): ("image_pull_failed", "the registry refused the pull"),
            registry.image("busy"): ("image_pull_failed", "the registry limits the rate of pulls"),
            registry.image("broken"): ("image_pull_failed", "500"),
            registry.image("lying"): ("image_pull_failed", "digest"),
            registry.image("cut"): ("image_pull_failed", "EOF"),
        }
        problems = await asyncio.gather(*(_pulled(agents, node, image) for image in expected))
    for image, problem in zip(expected, problems, strict=True):
        code, words = expected[image]
        assert problem is not None, image
        assert (problem.code, words in problem.detail) == (code, True), f"{image}: {problem}"
        assert problem.details == {"image": image, "node": node}


async def test_a_private_image_is_for_those_with_credentials_though_the_node_has_it(
    agents: NodeAgents, node: str
) -> None:
    async with odd_registry() as registry:
        image = registry.image("private")
        wrong = await _pulled(agents, node, image, Credentials(USER, "guessed"))
        assert wrong is not None
        assert wrong.code == "image_pull_failed"
        assert await _pulled(agents, node, image, Credentials(USER, PASSWORD)) is None
        try:
            assert image in await listed(agents, node)
            again = await _pulled(agents, node, image)
            assert again is not None, "another's image was given to who has no right to it"
            assert "the registry refused the pull" in again.detail
        finally:
            assert await agents.remove(node, image)


async def test_the_control_plane_reaches_the_agents(stack: Installed) -> None:
    (replica, *_) = await stack.pods("controlplane")
    told = await kubectl("exec", "-n", stack.namespace, replica, "--", "python3", "-c", FROM_THE_CONTROL_PLANE)
    assert IMAGE in json.loads(told)


async def test_users_see_images_and_have_them_pulled_ahead(
    agents: NodeAgents, node: str, client: Client, fresh_image: str
) -> None:
    report = await client.prefetch(fresh_image)
    assert (report.failed, list(report.here)) == ({}, [fresh_image])
    repository, _, digest = fresh_image.partition("@")
    (found,) = [one for one in await client.images() if one.digest == digest]
    assert (found.node, found.lazy, found.size_bytes > FILE_BYTES) == (node, False, True)
    assert any(name.startswith(repository) for name in found.names)
    assert await agents.remove(node, fresh_image)
    assert digest not in {one.digest for one in await client.images()}


async def test_code_in_a_sandbox_does_not_reach_it(stack: Installed, shared: Sandbox) -> None:
    address = str((await pod(stack))["status"]["podIP"])
    _, here = await asyncio.open_connection(address, 8443)
    here.close()
    await here.wait_closed()
    there = f"import socket; socket.create_connection(({address!r}, 8443), 5)"
    assert not (await shared.exec(["python3", "-c", there], timeout=60)).ok


async def test_it_ends_sandboxes_and_nothing_else(
    stack: Installed, agents: NodeAgents, node: str, client: Client
) -> None:
    async with await client.create(IMAGE, memory="128Mi") as sandbox:
        assert len(await agents.kill(node, sandbox.id)) == 1
        await until(lambda: _ended(client, sandbox.id), 60)
        record = await client.get(sandbox.id)
        assert record.end is not None
        assert record.end.cause == "sandbox_lost"
    with pytest.raises(Problem) as refused:
        await agents.kill(node, "sb-0000000000000000")
    assert refused.value.code == "sandbox_not_found"
    assert len(await stack.pods("node")) == 1


# Behind all others: by now the kubelet has had most of its two minutes.
@pytest.mark.timeout(600)
async def test_a_kernel_that_stands_still_is_ended_and_its_pod_goes(stack: Installed, hung: str) -> None:
    await until(lambda: _gone(stack, hung), KILLED_WITHIN_S)
    chosen = ("--field-selector", "reason=SandboxKernelKilled,involvedObject.kind=Node")
    assert any(hung in event["message"] for event in await objects("events", "-n", "default", *chosen))


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).end is not None


async def _gone(stack: Installed, name: str) -> bool:
    await asyncio.sleep(1)
    return name not in {one["metadata"]["name"] for one in await objects("pods", "-n", stack.sandboxes)}


async def test_cpu_time_is_what_the_control_group_of_the_pod_has_counted(client: Client) -> None:
    async with await client.create(IMAGE, cpu=(0.01, 0.3), memory="256Mi") as sandbox:
        (found,) = [one for one in await objects("pods", "-A") if one["metadata"]["name"] == sandbox.id]
        uid = found["metadata"]["uid"]
        busy = asyncio.create_task(sandbox.exec(TWO_BUSY, timeout=600))
        at_least = _pod_cpu_ms(uid) + 1000
        await until(lambda: _has_used(uid, at_least))
        # Between two looks at the group itself, while both still work.
        before = _pod_cpu_ms(uid)
        used = await sandbox.usage()
        after = _pod_cpu_ms(uid)
        assert used.cpu_counted_by == "node"
        # It is told in whole microseconds.
        assert before - 0.001 <= used.cpu_ms <= after
        busy.cancel()
        await asyncio.wait([busy])


async def _has_used(uid: str, ms: float) -> bool:
    return _pod_cpu_ms(uid) >= ms


def _pod_cpu_ms(uid: str) -> float:
    """What the control group of a pod has counted: its kernel is in that one, or in one below it."""
    for folder in Path("/proc").glob("[0-9]*"):
        # Others end between the listing and the look.
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if command.startswith(b"runsc-sandbox") and uid.encode() in command:
                return _counted_ms((folder / "cgroup").read_text(), uid)
    raise AssertionError(f"no gVisor kernel of pod {uid}")


def _counted_ms(groups: str, uid: str) -> float:
    places = {controllers: place for _, controllers, place in (line.split(":", 2) for line in groups.splitlines())}
    for controllers, place in places.items():
        if "cpuacct" in controllers.split(","):
            return int((_of_pod(controllers, place, uid) / "cpuacct.usage").read_text()) / 1e6
    told = dict(line.split() for line in (_of_pod("", places[""], uid) / "cpu.stat").read_text().splitlines())
    return int(told["usage_usec"]) / 1e3


def _of_pod(controllers: str, place: str, uid: str) -> Path:
    """The group that is named for the pod; systemd has no dashes in its names."""
    group = Path("/sys/fs/cgroup") / controllers / place.lstrip("/")
    return next(one for one in (group, *group.parents) if uid in one.name.replace("_", "-"))
