"""From inside, on the engine: the powers of the engine's own containers and no network."""

from __future__ import annotations

from rollbox import Client, Sandbox
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.stack import Product


async def test_commands_have_the_powers_of_the_target_and_no_more(client: Client) -> None:
    async with await client.create(IMAGE) as sandbox:
        mine = (await sandbox.exec("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")).stdout
        target = f"rollbox-{sandbox.id}-target"
        # What the engine itself gives a process in the target's container.
        theirs = await engine("exec", target, "grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status")
        bounding = [line for line in mine.splitlines() if line.startswith("CapBnd")]
        assert bounding == [line for line in theirs.splitlines() if line.startswith("CapBnd")]
        effective = {line.split()[0]: int(line.split()[1], 16) for line in mine.splitlines() if line.startswith("Cap")}
        sys_admin, sys_ptrace = 1 << 21, 1 << 19
        assert effective["CapEff:"] & (sys_admin | sys_ptrace) == 0
        assert effective["CapBnd:"] & (sys_admin | sys_ptrace) == 0
        nobody = (await sandbox.exec("grep CapEff /proc/self/status", user="nobody")).stdout
        assert int(nobody.split()[1], 16) == 0


async def test_there_is_no_network_but_loopback(stack: Product, sandbox: Sandbox) -> None:
    interfaces = (await sandbox.exec("cat /proc/net/dev | tail -n +3 | cut -d: -f1")).stdout.split()
    assert interfaces == ["lo"]
    host, port = stack.url.removeprefix("http://").split(":")
    reach = f"import socket; socket.create_connection(('{host}', {port}), 2)"
    assert (await sandbox.exec(["python3", "-c", reach])).exit_code == 1
    serve = (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\nprint('lo works')"
    )
    assert (await sandbox.exec(["python3", "-c", serve])).stdout == "lo works\n"
