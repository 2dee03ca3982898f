"""What the steps of a build reach by an egress policy: what it allows, by the relay of a sandbox, and nothing else.

On an engine; ``tests/e2e/test_build_egress.py`` has most of it on a cluster, whose release builds images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from rollbox import Client, EgressPolicy, EgressRule
from rollbox.errors import BuildFailed, SandboxError, Unsupported
from tests.product.test_builds import on_engine
from tests.support.building import Context, context
from tests.support.containers import engine
from tests.support.outside import ALLOWED, OTHER, WEB, outside

__all__ = ["context"]
HELLO = b"hello from outside\n"
INDEX = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[WEB], name="index")])
GET = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=20).read().decode())"
pytestmark = [pytest.mark.egress, on_engine]


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "hello").write_bytes(HELLO)
    with outside(folder):
        yield


async def networks(client: Client) -> list[str]:
    """The sandboxes that builds have made for their network; what is ending is in the server's hand."""
    return [one.id for one in await client.list({"build": "network"}) if one.state != "ending"]


@pytest.mark.tools
async def test_steps_reach_what_a_policy_allows_and_nothing_else(context: Context, client: Client) -> None:
    context.write(f"FROM $BASE\nRUN python3 -c '{GET}' http://index.test:{WEB}/hello > /x")
    with pytest.raises(BuildFailed, match="RUN python3"):
        await context.build()
    image = await context.build(egress=INDEX)
    async with await client.create(image) as sandbox:
        assert (await sandbox.exec("cat /x")).stdout == "hello from outside\n"
    assert await networks(client) == []
    for url in (
        f"http://index.test:{OTHER}/hello",
        f"http://inside.test:{WEB}/",
        "http://metadata.test/",
        "http://127.0.0.1:1/",
    ):
        context.write(f"FROM $BASE\nRUN python3 -c '{GET}' {url}")
        with pytest.raises(BuildFailed, match="RUN python3"):
            await context.build(egress=INDEX)
    context.write(f"FROM $BASE\nRUN --network=none python3 -c '{GET}' http://index.test:{WEB}/hello")
    with pytest.raises(Unsupported, match="--network=none beside an egress policy"):
        await context.build(egress=INDEX)
    direct = f'import socket; socket.create_connection(("{ALLOWED}", {WEB}), 5)'
    context.write(f"FROM $BASE\nRUN python3 -c '{direct}'")
    with pytest.raises(BuildFailed, match="RUN python3"):
        await context.build(egress=INDEX)
    assert await networks(client) == []


@pytest.mark.tools
async def test_what_is_added_from_an_address_comes_by_the_policy(context: Context, client: Client) -> None:
    url = f"http://index.test:{WEB}/hello"
    digest = f"sha256:{hashlib.sha256(HELLO).hexdigest()}"
    context.write(f"FROM $BASE\nARG NAME=hello\nADD {url[:-5]}$NAME /x\nADD --checksum={digest} --chmod=644 {url} /y/")
    with pytest.raises(Unsupported, match="takes a policy that allows its host"):
        await context.build()
    image = await context.build(egress=INDEX)
    async with await client.create(image) as sandbox:
        seen = await sandbox.exec("cat /x /y/hello; stat -c '%u %a' /x /y/hello")
        assert seen.stdout == "hello from outside\n" * 2 + "0 600\n0 644\n"
    # It is there, also for a sandbox that may reach nothing.
    assert (await context.build()).cached
    assert await networks(client) == []
    for address, said in (
        (f"http://index.test:{OTHER}/hello", "403"),
        (f"https://index.test:{OTHER}/hello", "403"),
        ("http://metadata.test/", "403"),
        (f"http://index.test:{WEB}/nosuch", "404"),
        (f"https://index.test:{WEB}/hello", "ADD of https"),
    ):
        context.write(f"FROM $BASE\nADD {address} /x")
        with pytest.raises(BuildFailed, match="line 3, ADD of") as failed:
            await context.build(egress=INDEX)
        assert said in failed.value.detail
    context.write(f"FROM $BASE\nADD --checksum=sha256:{'0' * 64} {url} /x")
    with pytest.raises(BuildFailed, match=f"it has the checksum {digest}, and not"):
        await context.build(egress=INDEX)
    assert await networks(client) == []


async def test_no_image_has_the_relay(context: Context) -> None:
    context.write("FROM $BASE\nRUN env > /dev/null")
    image = await context.build(egress=INDEX)
    said = await engine("image", "inspect", image.digest) + await engine("history", "--no-trunc", image.digest)
    assert ":3128" not in said


async def test_a_step_sees_neither_the_relay_nor_the_sandbox_of_its_network(context: Context) -> None:
    context.write("FROM $BASE\nRUN cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > /seen; ls / > /root-of-it")
    image = await context.build(egress=INDEX)
    async with await context.client.create(image) as sandbox:
        seen = (await sandbox.exec("cat /seen")).stdout
    assert "/dev/rollbox/target" in seen, "the process that only waits"
    assert "sidecar" not in seen


async def test_a_policy_that_is_not_there_is_told(context: Context) -> None:
    context.write("FROM $BASE")
    with pytest.raises(SandboxError, match="nosuch"):
        await context.build(egress="nosuch")
    context.write("FROM scratch\nCOPY of-this-test /")
    with pytest.raises(Unsupported, match="begins with an image"):
        await context.build(egress=INDEX)
