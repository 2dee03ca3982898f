"""Limits that programs give themselves, ports that they get: the same on both backends, or as the guide says it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollbox import Client, Sandbox
from tests.support.isolation import is_gvisor

# Each is a program for a process of its own: what it prints, or the signal that it ends by.
TRY = """
import ctypes, json, os, resource, signal, subprocess, sys
MIB = 1 << 20
DEEP = '''
import ctypes, sys
class Large(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * (int(sys.argv[1]) << 20))]
function = ctypes.CDLL(None).abs
function.argtypes = [Large]
function(Large())
print("lives")
'''
FORKS = '''
import os, signal
made = []
try:
    while len(made) < 40:
        made.append(os.fork() or signal.pause())
except BlockingIOError:
    pass
print(len(made))
for one in made: os.kill(one, 9)
'''

def tried(program, *arguments, limits=(), user=0):
    def before():
        for name, values in limits:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), values)
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
    command = [sys.executable, "-I", "-c", program, *arguments]
    ran = subprocess.run(command, preexec_fn=before, capture_output=True, text=True)
    return signal.Signals(-ran.returncode).name if ran.returncode < 0 else ran.stdout.strip() or ran.stderr.split()[-1]

def small(bytes_): return (bytes_, bytes_)

mapped = "held = bytearray(256 << 20); print('held')"
unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
print(json.dumps({
    "AS bounds memory": tried(mapped, limits=[("AS", small(128 * MIB))]),
    "DATA bounds memory": tried(mapped, limits=[("DATA", small(64 * MIB))]),
    "stack as it is, 30 MiB": tried(DEEP, "30"),
    "stack of 64 MiB, 30 MiB": tried(DEEP, "30", limits=[("STACK", small(64 * MIB))]),
    "stack of 4 GiB, 50 MiB": tried(DEEP, "50", limits=[("STACK", small(4096 * MIB))]),
    "unlimited stack, 3 MiB": tried(DEEP, "3", limits=[("STACK", unlimited)]),
    "unlimited stack, 30 MiB": tried(DEEP, "30", limits=[("STACK", unlimited)]),
    "NPROC 20, nobody": int(tried(FORKS, limits=[("NPROC", small(20))], user=65534)) <= 20,
    "NPROC 5, root": int(tried(FORKS, limits=[("NPROC", small(5))])) == 40,
}))
"""
SAME: dict[str, Any] = {
    "AS bounds memory": "MemoryError",
    "stack as it is, 30 MiB": "SIGSEGV",
    "stack of 64 MiB, 30 MiB": "lives",
    "stack of 4 GiB, 50 MiB": "lives",
    # That it is accepted matters more than what it gives: programs and graders ask for it first of all, and each of
    # them would fail where it was refused.
    "unlimited stack, 3 MiB": "lives",
    "NPROC 20, nobody": True,
}
# docs/guide/gvisor.md says these.
ON_ENGINE: dict[str, Any] = {
    "DATA bounds memory": "MemoryError",
    "unlimited stack, 30 MiB": "lives",
    "NPROC 5, root": True,
}
IN_GVISOR: dict[str, Any] = {
    "DATA bounds memory": "held",
    "unlimited stack, 30 MiB": "SIGSEGV",
    "NPROC 5, root": False,
}


@pytest.mark.core
async def test_limits_of_the_kernel_hold_as_the_guide_says(client: Client, shared: Sandbox) -> None:
    ran = await shared.exec(["python3", "-c", TRY], timeout=120, check=True)
    own = IN_GVISOR if await is_gvisor(client) else ON_ENGINE
    assert json.loads(ran.stdout) == SAME | own


async def test_a_shell_sets_the_limit_of_the_stack(shared: Sandbox) -> None:
    for size in ("65536", "131072", "unlimited", "hard"):
        ran = await shared.exec(f"ulimit -s {size} && echo set", check=True)
        assert (ran.stdout, ran.stderr) == ("set\n", ""), size


PORTS = """
import socket
with socket.create_server(("127.0.0.1", 0), backlog=300) as server:
    ends = [socket.create_connection(server.getsockname()) for _ in range(200)]
    print(min(one.getsockname()[1] for one in ends), max(one.getsockname()[1] for one in ends), server.getsockname()[1])
"""


async def test_clients_get_no_port_that_servers_of_tests_have(shared: Sandbox) -> None:
    said = await shared.exec("cat /proc/sys/net/ipv4/ip_local_port_range", check=True)
    assert said.stdout.split() == ["32768", "60999"]
    ports = (await shared.exec(["python3", "-c", PORTS], check=True)).stdout.split()
    assert all(32_768 <= int(port) <= 60_999 for port in ports), ports
