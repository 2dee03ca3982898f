"""From inside a gVisor pod: the user's code is the attacker, and the network is closed."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client, Sandbox
from tests.support.addresses import pod_address, service
from tests.support.images import IMAGE
from tests.support.installed import Installed, machines
from tests.support.waiting import until

# Tries one TCP address; prints how it ended.
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except ConnectionRefusedError:
    print("refused")
except OSError as error:
    print("closed")
"""
DNS_PROBE = """
import socket, sys
query = b"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x07example\\x03com\\x00\\x00\\x01\\x00\\x01"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
    asked.settimeout(3)
    try:
        asked.sendto(query, (sys.argv[1], 53))
        print("answered", len(asked.recv(512)))
    except OSError:
        print("closed")
"""


async def probe(sandbox: Sandbox, host: str, port: int) -> str:
    """How a connection from inside ends: open, refused (something is there and says no) or closed."""
    result = await sandbox.exec(["python3", "-c", PROBE, host, str(port)], timeout=60, check=True)
    return result.stdout.strip()


async def opens(sandbox: Sandbox, host: str, port: int) -> bool:
    """Whether a connection comes about; on a busy machine a try may run out of time."""
    return await probe(sandbox, host, port) == "open"


@pytest.mark.core
async def test_the_kernel_is_gvisors(shared: Sandbox, client: Client) -> None:
    assert "gvisor" in (await shared.exec("cat /proc/version", check=True)).stdout.lower()
    assert "gvisor" in (await client.get(shared.id)).kernel.lower()
    assert "gvisor" in str((await client.info())["isolation"]).lower()


@pytest.mark.core
async def test_nothing_of_the_platform_or_the_cluster_can_be_reached(stack: Installed, shared: Sandbox) -> None:
    gateway = await pod_address((await stack.pods("gateway"))[0], stack.namespace)
    redis = await pod_address((await stack.pods("redis"))[0], stack.namespace)
    controlplane = await pod_address((await stack.pods("controlplane"))[0], stack.namespace)
    node = next(
        address["address"]
        for address in (await machines())[0]["status"]["addresses"]
        if address["type"] == "InternalIP"
    )
    closed = {
        "API server": (await service("kubernetes", "default"), 443),
        "API server on the node": (node, 6443),
        "kubelet": (node, 10250),
        "metadata": ("169.254.169.254", 80),
        "gateway": (gateway, 8080),
        "Redis": (redis, 6379),
        "control plane": (controlplane, 8081),
        "route feed": (controlplane, 8083),
        "cluster DNS": (await service("kube-dns", "kube-system"), 53),
        "sandbox DNS": (await service(f"{stack.release}-dns", stack.namespace), 53),
    }
    seen = await asyncio.gather(*(probe(shared, host, port) for host, port in closed.values()))
    assert dict(zip(closed, seen, strict=True)) == dict.fromkeys(closed, "closed")


async def test_the_readiness_port_is_the_one_that_can_be_reached_and_it_takes_nothing_else(
    stack: Installed, shared: Sandbox
) -> None:
    ready = await service(f"{stack.release}-ready", stack.namespace)
    await until(lambda: opens(shared, ready, 8082))
    ask = (
        "import sys, urllib.request, urllib.error\n"
        "for path, data in (('/', None), ('/v1/sandboxes', None), ('/metrics', None), ('/v1/ready', b'{}')):\n"
        "    try: print(urllib.request.urlopen(f'http://{sys.argv[1]}:8082{path}', data, 20).status)\n"
        "    except urllib.error.HTTPError as error: print(error.code)\n"
    )
    answers = (await shared.exec(["python3", "-c", ask, ready], check=True)).stdout.split()
    assert answers[:3] == ["404", "404", "404"]
    assert answers[3] in {"400", "401"}


async def test_names_are_no_way_out(shared: Sandbox) -> None:
    dns = await service("kube-dns", "kube-system")
    result = await shared.exec(["python3", "-c", DNS_PROBE, dns], timeout=20, check=True)
    assert result.stdout.strip() == "closed"


async def test_two_sandboxes_do_not_reach_each_other(stack: Installed, client: Client, shared: Sandbox) -> None:
    one = shared
    async with await client.create(IMAGE) as two:
        other = await pod_address(two.id, stack.sandboxes)
        await two.exec("python3 -m http.server 8000 >/dev/null 2>&1 &")
        await two.ports.wait(8000)
        assert await probe(one, other, 8000) == "closed"
        assert await probe(one, other, 7070) == "closed"
        await until(lambda: opens(two, "127.0.0.1", 8000))


async def test_there_is_no_token_and_no_secret_inside(shared: Sandbox) -> None:
    assert (await shared.exec("ls /var/run/secrets/kubernetes.io")).exit_code != 0
    environment = (await shared.exec("cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).stdout
    for name in ("TOKEN", "ROLLBOX_SIDECAR", "KUBERNETES_SERVICE", "REDIS"):
        assert name not in environment


async def test_the_targets_program_cannot_be_replaced(shared: Sandbox) -> None:
    for file in ("/.rollbox/target", "/.rollbox"):
        await shared.exec(f"rm -rf {file}; echo x > /.rollbox/target; mount -o remount,rw /.rollbox")
        assert (await shared.exec("head -c 4 /.rollbox/target | tail -c 3")).stdout == "ELF", file


async def test_powers_are_those_of_a_plain_container(shared: Sandbox) -> None:
    status = (await shared.exec("grep -E '^Cap(Eff|Bnd)' /proc/self/status", check=True)).stdout
    sets = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines()}
    sys_ptrace, sys_admin = 1 << 19, 1 << 21
    assert sets["CapEff:"] & (sys_admin | sys_ptrace) == 0
    assert sets["CapBnd:"] & (sys_admin | sys_ptrace) == 0
