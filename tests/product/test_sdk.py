"""The SDK's own promises on the real product: handles, shared connections, many commands at once, the sync face."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, RetryPolicy, Sandbox, sync
from rollbox.errors import ExecFailed, InvalidArgument, SandboxNotFound, Unauthenticated, UpstreamTimeout
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.stack import Product, free_port

EXAMPLES = Path(__file__).parents[2] / "sdk" / "examples"
# Sandboxes among which one client's commands must not be mixed up; a start on a cluster costs seconds of a core.
MANY = 3 if ON_CLUSTER else 20
# Those of the examples that a cluster answers in another way than an engine: each makes a sandbox of its own. What the
# others do is asked of a cluster by the tests of its part, in a sandbox that they share.
ON_CLUSTER_TOO = ("quickstart", "ports", "sockets", "usage")


@pytest.fixture
def found(stack: Product, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """The product as a user's program finds it."""
    for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY", "ROLLBOX_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    yield stack
    sync.close()


def connections(stack: Product) -> int:
    """Open connections from this process to the gateway, as the kernel counts them."""
    port = f":{int(stack.url.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(port) and line[3] == "01"}
    return sum(_points_to(descriptor) in inodes for descriptor in Path("/proc/self/fd").iterdir())


def _points_to(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


async def test_a_detached_sandbox_is_found_again(client: Client) -> None:
    async with await client.create(IMAGE, memory="256Mi", labels={"run": "detach", "n": "1"}, ttl=300) as sandbox:
        await sandbox.exec("echo kept > /tmp/file")
        sandbox_id = await sandbox.detach()
    assert [record.id for record in await client.list({"run": "detach"})] == [sandbox_id]
    assert await client.list({"run": "detach", "n": "2"}) == []
    async with await client.connect(sandbox_id) as again:
        assert (await again.exec("cat /tmp/file")).stdout == "kept\n"
        assert again.labels == {"run": "detach", "n": "1"}
        before = again.record.expires_at_ms
        assert (await again.extend(3600)).expires_at_ms > before + 3_000_000
        assert (await again.extend(1)).expires_at_ms > before + 3_000_000
        await again.delete(wait=True)
    assert await client.list({"run": "detach"}) == []
    assert [record.state for record in await client.list({"run": "detach"}, all=True)] == ["ended"]


async def test_one_pool_of_connections_for_a_loop(found: Product) -> None:
    assert connections(found) == 0
    # What an earlier test has deleted may be on its way still.
    wish: Any = {"memory": "128Mi", "labels": {"run": "one-pool"}}
    async with await Sandbox.create(IMAGE, **wish) as one, await Sandbox.create(IMAGE, **wish) as two:
        for sandbox in (one, two, one, two):
            assert (await sandbox.exec(["true"])).ok
        assert connections(found) == 1
        again = await Sandbox.connect(one.id)
        assert {record.id for record in await Sandbox.list(labels=wish["labels"])} == {one.id, two.id}
        assert connections(found) == 1
        await again.delete()
    await asyncio.sleep(0)
    assert connections(found) == 0


# Most of it is the starts.
@pytest.mark.timeout(300)
async def test_five_hundred_commands_at_once_over_many_sandboxes_that_go_by_their_labels(client: Client) -> None:
    # Little set aside for each: they have to fit on a node of two cores together.
    wish: Any = {"cpu": (0.01, 2), "memory": ("32Mi", "64Mi")}
    labels = [{"run": "many", "n": str(n)} for n in range(MANY - 1)] + [{"run": "other", "n": "0"}]
    made = await asyncio.gather(*(client.create(IMAGE, **wish, labels=held) for held in labels))
    one, two, *_, other = made
    try:
        async with asyncio.timeout(120):
            calls = [made[n % MANY].exec(f"echo {n}; exit {n % 7}") for n in range(500)]
            results = await asyncio.gather(*calls)
        assert [(r.stdout, r.exit_code) for r in results] == [(f"{n}\n", n % 7) for n in range(500)]
        assert [r.sandbox_id for r in results] == [made[n % MANY].id for n in range(500)]
        report = await client.delete(labels={"run": "many", "n": "0"})
        assert (report.deleted, report.failed) == ([one.id], {})
        report = await client.delete("sb-0000000000000000", two.id, labels={"run": "many"})
        assert {*report.deleted} >= {sandbox.id for sandbox in made[1:-1]}
        assert isinstance(report.failed["sb-0000000000000000"], SandboxNotFound)
        assert (await other.exec("echo alive")).stdout == "alive\n"
        with pytest.raises(InvalidArgument):
            await client.delete()
    finally:
        await client.delete(*(sandbox.id for sandbox in made))


async def test_the_sync_face(found: Product) -> None:
    def program() -> None:
        with sync.Sandbox.create(IMAGE, memory="128Mi", labels={"run": "sync"}) as sandbox:
            assert sandbox.exec("cat; exit 3", stdin=b"\xff").stdout_bytes == b"\xff"
            with pytest.raises(ExecFailed):
                sandbox.exec("exit 3", check=True)
            assert [record.id for record in sync.Sandbox.list({"run": "sync"})] == [sandbox.id]
            with sync.Sandbox.connect(sandbox.id) as again:
                assert again.exec(["echo", "same"]).stdout == "same\n"
                again.detach()
            sandbox.delete(wait=True)
        with sync.Client(found.url, found.api_key) as client:
            assert client.get(sandbox.id).state == "ended"

    await asyncio.to_thread(program)


async def test_a_program_that_finds_no_gateway_or_has_no_right(stack: Product) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with Client(nowhere, "rbx_key", retries=RetryPolicy(tries=2)) as client:
        with pytest.raises(UpstreamTimeout, match="rollbox up") as silent:
            await client.create(IMAGE)
        assert silent.value.is_infra
    async with Client(stack.url, "rbx_wrong") as client:
        with pytest.raises(Unauthenticated, match="ROLLBOX_API_KEY"):
            await client.create(IMAGE)


EXAMPLE_LINES = [
    ("cells", ["27 36 27 27 45 45 63 63 54 45 54 63 72 99 81 72"]),
    ("recursive", ["turn 0: finished, 7 sub-calls", "turn 1: finished, 0 sub-calls", "answer: 2000"]),
    ("quickstart", ["42", "exec_failed the code's own fault"]),
    (
        "exec",
        [
            "['/tmp', '7', '1000', '0077', 'its input']",
            "deadline so far",
            "['1', '2', '3', '4'] True 588895",
            "1 False",
            "1 True",
        ],
    ),
    (
        "processes",
        [
            "line 1",
            "line 2",
            "line 3",
            "0",
            "to cat and back",
            "ready",
            "asked to end 5",
            "started",
            "cancelled",
            "4 on record, 0 running",
        ],
    ),
    ("shell", ["1 ['/tmp', 'rollbox'] trouble", "deadline rollbox is still here"]),
    (
        "files",
        [
            "it was there from the start",
            "hello",
            "['/tmp/notes/hello.txt']",
            "b'ello'",
            "file 6 False",
            "['/tmp/notes/old', '/tmp/notes/old/copy.txt', '/tmp/notes/old/hello.txt']",
            "[]",
            "2 {} ['empty', 'run.sh']",
            "watching",
            "changed: /tmp/tree/new.txt",
            "sent 5 MiB, progress in steps: True",
        ],
    ),
    (
        "ports",
        [
            "private: hello from the sandbox",
            "without its headers: refused with 401",
            "by host name: hello from the sandbox",
            "public: hello from the sandbox",
            "raw: HTTP/1.0 200 OK",
            "forwarded: hello from the sandbox",
        ],
    ),
    ("sockets", ["WebSocket: echo message", "UDP: echo datagram"]),
    (
        "terminal",
        ["rows and columns: 24 80", "['you', '50 132', 'hello you']", "signalled SIGINT"],
    ),
    ("usage", ["memory grew by 60 MiB and more: True", "processes more: 1"]),
]


@pytest.mark.parametrize(
    ("name", "lines"), [one for one in EXAMPLE_LINES if not ON_CLUSTER or one[0] in ON_CLUSTER_TOO]
)
@pytest.mark.usefixtures("found")
async def test_the_examples_do_what_they_say(name: str, lines: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / f"{name}.py"),
        IMAGE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert [line for line in out.decode().splitlines() if line in lines] == lines, out.decode()
