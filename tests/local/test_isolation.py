"""From inside: the user's code is the attacker."""

from __future__ import annotations

import ast

import pytest

from rollbox import Client, Sandbox
from tests.support.containers import engine
from tests.support.stack import IMAGE, Stack


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


async def test_the_sidecar_cannot_be_seen(sandbox: Sandbox) -> None:
    # Process 1 is the spawner, as the init of the sandbox's own PID namespace; it gives nothing away.
    seen = (
        await sandbox.exec(["python3", "-c", "import os; print(sorted(filter(str.isdigit, os.listdir('/proc'))))"])
    ).stdout
    assert len(ast.literal_eval(seen)) == 2
    for look in ("cat environ", "head -c 1 mem", "cat maps", "readlink fd/3", "ls root/", "ls cwd/"):
        assert (await sandbox.exec(look, cwd="/proc/1")).exit_code != 0, look
    environment = (await sandbox.exec("cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).stdout
    assert "TOKEN" not in environment
    assert "ROLLBOX_SIDECAR" not in environment
    assert (await sandbox.exec("ls /run/rollbox")).exit_code != 0


async def test_no_file_descriptor_leaks(sandbox: Sandbox) -> None:
    result = await sandbox.exec(["python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"])
    # The fourth is the folder that is being listed.
    assert result.stdout == "['0', '1', '2', '3']\n"


@pytest.mark.parametrize(
    "attack",
    [
        "mount -t tmpfs none /mnt",
        "umount /proc",
        "unshare --mount true",
        "unshare --user true",
        "unshare --pid --fork true",
        "nsenter --mount=/proc/1/ns/mnt true",
        "chroot /proc/1/root ls /run/rollbox",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/vm/drop_caches",
        "head -c 1 /proc/kcore | grep -q .",
        "mknod /tmp/sda b 8 0 && head -c 1 /tmp/sda",
        "python3 -c \"import ctypes; exit(0 if ctypes.CDLL(None).sethostname(b'x', 1) == 0 else 1)\"",
    ],
)
async def test_what_must_fail_for_root_inside(sandbox: Sandbox, attack: str) -> None:
    result = await sandbox.exec(attack, timeout=20)
    assert result.end == "exited"
    assert result.exit_code != 0, result


async def test_there_is_no_network_but_loopback(stack: Stack, sandbox: Sandbox) -> None:
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


async def test_two_sandboxes_share_nothing(client: Client) -> None:
    async with await client.create(IMAGE) as one, await client.create(IMAGE) as two:
        await one.exec("echo secret > /tmp/file; sleep 3210 & true")
        assert (await two.exec("cat /tmp/file")).exit_code != 0
        assert (await two.exec("pgrep -f 'sleep 321[0]'")).exit_code == 1


async def test_killing_everything_hurts_only_the_sandbox_itself(sandbox: Sandbox) -> None:
    result = await sandbox.exec("kill -9 -1; echo survived", timeout=10)
    assert result.end in {"exited", "signalled"}
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"
