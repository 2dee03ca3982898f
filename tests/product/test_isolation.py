"""From inside: the user's code is the attacker."""

from __future__ import annotations

import ast

import pytest

from rollbox import Client, Sandbox
from tests.support.images import IMAGE
from tests.support.waiting import until


@pytest.mark.core
async def test_the_sidecar_cannot_be_seen(shared: Sandbox) -> None:
    # Process 1 is the spawner, as the init of the sandbox's own PID namespace; it gives nothing away. What other tests
    # have left is being killed.
    await until(lambda: _sees_two_processes(shared))
    for look in ("cat environ", "head -c 1 mem", "cat maps", "readlink fd/3", "ls root/", "ls cwd/"):
        assert (await shared.exec(look, cwd="/proc/1")).exit_code != 0, look
    environment = (await shared.exec("cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).stdout
    assert "TOKEN" not in environment
    assert "ROLLBOX_SIDECAR" not in environment
    assert (await shared.exec("ls /run/rollbox")).exit_code != 0


async def _sees_two_processes(sandbox: Sandbox) -> bool:
    look = "import os; print(sorted(filter(str.isdigit, os.listdir('/proc'))))"
    return len(ast.literal_eval((await sandbox.exec(["python3", "-c", look])).stdout)) == 2


async def test_no_file_descriptor_leaks(shared: Sandbox) -> None:
    result = await shared.exec(["python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"])
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
async def test_what_must_fail_for_root_inside(shared: Sandbox, attack: str) -> None:
    result = await shared.exec(attack, timeout=20)
    assert result.end == "exited"
    assert result.exit_code != 0, result


async def test_two_sandboxes_share_nothing(client: Client, shared: Sandbox) -> None:
    one = shared
    async with await client.create(IMAGE) as two:
        await one.exec("echo secret > /tmp/file; sleep 3210 & true")
        assert (await two.exec("cat /tmp/file")).exit_code != 0
        assert (await two.exec("pgrep -f 'sleep 321[0]'")).exit_code == 1
    await one.exec("rm /tmp/file; pkill -f 'sleep 321[0]'", check=True)


async def test_killing_everything_hurts_only_the_sandbox_itself(shared: Sandbox) -> None:
    result = await shared.exec("kill -9 -1; echo survived", timeout=10)
    assert result.end in {"exited", "signalled"}
    assert (await shared.exec("echo alive")).stdout == "alive\n"


@pytest.mark.core
async def test_a_name_that_nobody_resolves_is_told_at_once(shared: Sandbox) -> None:
    """No program waits for a resolver that it cannot reach; a lookup at the cluster's one took 20 s to fail."""
    look = "import socket\ntry: socket.getaddrinfo('example.org', 80)\nexcept socket.gaierror: print('no such name')"
    result = await shared.exec(["python3", "-c", look], timeout=10)
    assert (result.end, result.stdout) == ("exited", "no such name\n")
