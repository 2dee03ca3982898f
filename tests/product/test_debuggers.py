"""Debuggers attach to what a sandbox's user may trace, and to nothing of the platform's."""

from __future__ import annotations

import contextlib

import pytest

from rollbox import Client, Sandbox, program_check
from tests.support.images import IMAGE
from tests.support.isolation import is_gvisor

# Attaches to a process as `gdb -p` does, and reads its memory as `py-spy dump` does: prints how each ended.
ATTACH = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])

def said(result):
    return "allowed" if result >= 0 else os.strerror(ctypes.get_errno())

def attached():
    ended = libc.ptrace(16, pid, None, None)
    told = said(ended)
    if ended == 0:
        os.waitpid(pid, 0x40000000)
        libc.ptrace(17, pid, None, None)
    return told

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def read():
    try:
        with open(f"/proc/{pid}/maps") as maps:
            begin = int(maps.readline().partition("-")[0] or "0", 16)
    except OSError as error:
        return error.strerror
    here = ctypes.create_string_buffer(4)
    mine, theirs = Vector(ctypes.addressof(here), 4), Vector(begin, 4)
    return said(libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))

print(attached(), read(), sep="; ")
"""
# The processes of the platform that commands see.
OURS = "for p in /proc/[0-9]*; do read -r name < $p/comm && case $name in rollbox-*) basename $p;; esac; done; true"
ALLOWED = "allowed; allowed"
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
# Of a kernel without that setting it is as if it were 0.
ANY = "0"


async def attach(sandbox: Sandbox, pid: str, user: str | None = None) -> str:
    """How it ends to attach to a process, and to read its memory."""
    return (await sandbox.exec(["python3", "-c", ATTACH, pid], user=user, check=True)).stdout.strip()


async def waiting(sandbox: Sandbox, user: str | None = None) -> str:
    """A process that waits, and belongs to a command that has ended."""
    return (await sandbox.exec("sleep 4321 > /dev/null 2>&1 & echo $!", user=user, check=True)).stdout.strip()


async def scope(sandbox: Sandbox) -> str:
    """Which processes may be traced: 0 are all of the same user."""
    return (await sandbox.exec(f"cat {SCOPE} 2> /dev/null || echo {ANY}")).stdout.strip()


@pytest.mark.core
async def test_a_running_process_is_attached_to(client: Client, shared: Sandbox) -> None:
    """Under gVisor always; on an engine as the machine's own setting says, which no sandbox may change."""
    may = await scope(shared)
    assert may == ANY or not await is_gvisor(client)
    for user in (None, "1000:1000"):
        seen = await attach(shared, await waiting(shared, user), user)
        assert (seen == ALLOWED) is (may == ANY), (user, may, seen)
    await shared.exec("pkill -f 'sleep 432[1]'")


async def test_another_users_process_is_not(shared: Sandbox) -> None:
    for theirs, mine in (("1000:1000", None), (None, "1000:1000"), ("1001:1000", "1000:1000")):
        seen = await attach(shared, await waiting(shared, theirs), mine)
        assert "allowed" not in seen, (theirs, mine, seen)
    await shared.exec("pkill -f 'sleep 432[1]'")


async def test_a_program_is_started_under_a_debugger(shared: Sandbox) -> None:
    program = (
        "import ctypes, os\n"
        "if (pid := os.fork()) == 0:\n"
        "    ctypes.CDLL(None).ptrace(0, 0, None, None)\n"
        "    os.execvp('true', ['true'])\n"
        "_, status = os.waitpid(pid, 0)\n"
        "print('stops at', os.WSTOPSIG(status) if os.WIFSTOPPED(status) else status)\n"
        "ctypes.CDLL(None).ptrace(7, pid, None, None)\n"
        "print('ends with', os.waitpid(pid, 0)[1])\n"
    )
    ran = await shared.exec(["python3", "-c", program], user="1000:1000", check=True)
    assert ran.stdout == "stops at 5\nends with 0\n"


@pytest.mark.core
async def test_nothing_of_the_platform_is_attached_to(shared: Sandbox) -> None:
    """Neither the init nor a file worker, which has a copy of the init's memory and the user of who calls it."""
    for user in (None, "1000:1000"):
        async with contextlib.aclosing(shared.files.watch("/tmp", user=user)) as changes:
            assert (await anext(changes)).change == "watching"
            ours = (await shared.exec(OURS)).stdout.split()
            assert "1" in ours
            assert len(ours) > 1, "the file worker is not seen"
            for pid in ours:
                for other in (None, "1000:1000"):
                    seen = await attach(shared, pid, other)
                    assert "allowed" not in seen, (pid, user, other, seen)
    assert (await shared.exec("echo alive")).stdout == "alive\n"


async def test_the_doctor_sees_what_programs_may_do(client: Client, shared: Sandbox) -> None:
    found = {one.name: one for one in await program_check.check(client, IMAGE)}
    assert {name: one.ok for name, one in found.items()} == {
        "setuid programs": True,
        "debuggers": await scope(shared) == ANY,
    }, found
