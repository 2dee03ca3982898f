"""What builds reach on a real cluster: by their owner's policy, over the control plane, and nothing beside it."""

from __future__ import annotations

import asyncio
import ensurepip
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rollbox import Client, EgressPolicy, EgressRule
from rollbox.errors import BuildFailed, SandboxError
from tests.product.test_build_egress import (
    GET,
    HELLO,
    INDEX,
    networks,
    test_a_policy_that_is_not_there_is_told,
    test_steps_reach_what_a_policy_allows_and_nothing_else,
    test_what_is_added_from_an_address_comes_by_the_policy,
)
from tests.support import dated_index
from tests.support.building import Context, context
from tests.support.committing import committing
from tests.support.installed import Installed, kubectl, objects, own_cluster
from tests.support.outside import ALLOWED, DNS, INDEXES, WEB, outside
from tests.support.waiting import until

__all__ = [
    "context",
    "test_a_policy_that_is_not_there_is_told",
    "test_steps_reach_what_a_policy_allows_and_nothing_else",
    "test_what_is_added_from_an_address_comes_by_the_policy",
]
pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not told of another registry by a test"),
]
RELEASE = "rollbox-build-egress"
UPSTREAM = f"http://{INDEXES}:{dated_index.PORT}"
MORE = (
    "builds.enabled=true",
    # The kubelet of `make cluster` has a folder of its own, where gVisor's shim finds no volume.
    "builds.state=memory",
    *(f"builds.limits.{name}={value}" for name, value in {"memoryMebibytes": 1024, "diskMebibytes": 1536}.items()),
    "egress.enabled=true",
    "egress.replicas=1",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    f"egress.allowedPrivateCidrs[1]={INDEXES}/32",
    f"egress.dnsServers[0]={DNS}",
    "egress.packages.enabled=true",
    rf"egress.packages.indexes.pypi\.org={UPSTREAM}/pypi",
    rf"egress.packages.indexes.files\.pythonhosted\.org={UPSTREAM}/files",
)
PIP = "python3 /pip.whl/pip --disable-pip-version-check install --no-cache-dir --retries 0 --target /there tiny"
# Each address, first by itself, then by the relay: what a step says that has reached one.
TRIES = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
        print("REACHED", place)
    except OSError as error:
        print("by itself", place, error)
    if host == "127.0.0.1":
        continue  # to the relay that is the sandbox of the build's network, its owner's
    relay = socket.create_connection(("127.0.0.1", 3128), 20)
    relay.sendall(f"CONNECT {place} HTTP/1.1\\r\\nHost: {place}\\r\\n\\r\\n".encode())
    answer = relay.recv(4096).split(b"\\r\\n")[0].decode()
    print("REACHED" if " 200 " in answer else "by the relay", place, answer)
    relay.close()
"""


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "hello").write_bytes(HELLO)
    with outside(folder, sys.executable, dated_index.__file__, INDEXES):
        yield


@pytest.fixture(scope="module")
def stack(servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release that builds images and has egress."""
    with asyncio.Runner() as runner:
        installing = committing(RELEASE, tmp_path_factory.mktemp("upstream"), *MORE)
        made = runner.run(installing.__aenter__())
        try:
            yield made
        finally:
            runner.run(installing.__aexit__(None, None, None))


@pytest.fixture
async def stranger(stack: Installed) -> AsyncIterator[Client]:
    async with Client(stack.url, stack.strangers_key) as client:
        yield client


async def none_left(client: Client, stack: Installed) -> bool:
    """Whether neither the pod of a build is there nor the sandbox of its network."""
    pods = await objects("pods", "-n", stack.sandboxes, "-l", "rollbox.dev/build")
    return not pods and not await client.list({"build": "network"})


async def test_pip_installs_through_the_package_cache_what_the_policy_allows(
    context: Context, client: Client, stack: Installed
) -> None:
    (packed,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    shutil.copy(packed, context.folder / "pip.whl")
    context.write(f"FROM $BASE\nCOPY pip.whl /\nRUN {PIP}")
    with pytest.raises(BuildFailed, match="RUN python3"):
        await context.build(egress=INDEX)
    say = "PYTHONPATH=/there python3 -c 'import tiny; print(tiny.VERSION)'"
    assert await context.seen(say, egress="packages") == "2.0\n"
    await until(lambda: none_left(client, stack))


async def test_a_step_reaches_no_part_of_the_platform(context: Context, client: Client, stack: Installed) -> None:
    services = await objects("services", "-n", stack.namespace)
    pods = [*await objects("pods", "-n", stack.namespace), *await objects("pods", "-n", stack.sandboxes)]
    places = ["127.0.0.1:7070", "169.254.169.254:80", f"{ALLOWED}:{WEB}"]
    places += [
        f"{one['spec']['clusterIP']}:{port['port']}"
        for one in services
        for port in one["spec"]["ports"]
        if one["spec"]["clusterIP"] != "None"
    ]
    places += [f"{one['status']['podIP']}:{port}" for one in pods for port in (7070, 8080)]
    node = await kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.addresses[0].address}")
    places += [f"{node}:{port}" for port in (22, 6443, 10250)]
    places += ["10.97.0.1:443", "10.97.0.10:53"]
    context.write(f"FROM $BASE\nCOPY try.py /\nRUN python3 /try.py {' '.join(places)} > /said; cat /said")
    context.put("try.py", TRIES)
    # Everything but what egress lets nobody reach, and the one private address that this release lets them.
    policy = EgressPolicy(mode="deny", deny=[EgressRule(cidr=f"{ALLOWED}/32")])
    said = await context.seen("cat /said", egress=policy)
    assert (said.count("by itself"), said.count("by the relay")) == (len(places), len(places) - 1), said
    assert "REACHED" not in said
    await until(lambda: none_left(client, stack))


async def test_what_another_owner_may_reach_is_of_no_use(context: Context, client: Client, stranger: Client) -> None:
    await stranger.set_egress_preset("of-a-stranger", INDEX)
    context.write(f"FROM $BASE\nRUN python3 -c '{GET}' http://index.test:{WEB}/hello")
    with pytest.raises(SandboxError, match="of-a-stranger"):
        await context.build(egress="of-a-stranger")
    assert await networks(client) == []


async def test_nothing_is_left_of_a_build_that_is_left_while_its_step_has_a_connection(
    context: Context, client: Client, stack: Installed
) -> None:
    hold = (
        f'import socket; s = socket.create_connection(("127.0.0.1", 3128), 20); '
        f's.sendall(b"CONNECT index.test:{WEB} HTTP/1.1\\r\\n\\r\\n"); print(s.recv(99)[:12], flush=True); s.recv(1)'
    )
    context.write(f"FROM $BASE\nRUN python3 -c '{hold}'")
    rules = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[WEB])])
    said = ""
    async with aclosing(aiter(client.build(context.folder, egress=rules))) as told:
        async for progress in told:
            said += progress.text
            if "HTTP/1.1 200" in said.replace("b'", ""):
                assert len(await networks(client)) == 1
                break
    assert "200" in said
    await until(lambda: none_left(client, stack))
