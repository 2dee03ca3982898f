"""`helm test`: creates a sandbox as a user would, runs a command in it, checks its kernel, its network and egress."""

import asyncio
import json
import os
import socket
import sys

from controlplane.reach import attempts
from controlplane.reach.attempts import Seen
from controlplane.reach.ways import KUBELET_PORT, READY, Way, dumped
from rollbox import SandboxError
from rollbox.client import Client
from rollbox.egress_check import Found, Place, check
from rollbox.egress_check.tries import place
from rollbox.sandbox import Sandbox as AsyncSandbox
from rollbox.sync import Sandbox

from .api import ApiError, HookError, call
from .network import closed, isolation

NEIGHBOUR = "agent port of another sandbox"
AGENT_PORT = 7070
# The policies of the sandbox are in effect already, but a busy node may delay a connection.
RETRY_FOR_S = 15.0


def first_exec(sandbox: Sandbox) -> str:
    """Runs a first command and checks the sandbox's kernel.

    Raises:
        HookError: the command fails, or the kernel is not the required one.
    """
    required = os.environ["REQUIRED_KERNEL"]
    result = sandbox.exec("cat /proc/version", timeout=60)
    said = f"{sandbox.id}: exit code {result.exit_code}, kernel {result.stdout.strip()}"
    if result.exit_code or not (required == "any" or required.lower() in result.stdout.lower()):
        raise HookError(said)
    return said


def network(neighbour: Sandbox) -> str:
    """Checks which destinations another sandbox reaches, including ``neighbour``.

    Raises:
        HookError: it reaches what it must not, or does not reach what it must.
    """
    with Sandbox.create(os.environ["PROBE_IMAGE"], ttl=300) as sandbox:
        node, address = str(status(sandbox)["hostIP"]), str(status(neighbour)["podIP"])
        gateway, ready = (split(os.environ[name]) for name in ("GATEWAY", "READY"))
        found = closed(Way("gateway", *gateway), Way(NEIGHBOUR, address, AGENT_PORT))
        ways = [one.of_node(node) for one in (*found, Way(READY, *ready, must_work=True, retry_for_s=RETRY_FOR_S))]
        result = sandbox.exec(["python3", "-m", "controlplane.reach", dumped(ways)], timeout=120, check=True)
    inside = attempts.read_report(json.loads(result.stdout)["seen"])
    # Policies deny this pod the neighbour's port, so it cannot try it for comparison. The port is known to be open,
    # since the gateway has just run a command through it.
    return isolation(ways, inside, accepted=os.environ["ACCEPT_UNENFORCED"] == "true", known={NEIGHBOUR: Seen("open")})


def egress() -> str:
    """Has a sandbox try what egress must refuse, and what it must reach.

    Raises:
        HookError: something is not as it should be.
    """
    if os.environ["EGRESS"] != "true":
        return "egress is not installed (egress.enabled): sandboxes reach nothing outside"
    found = asyncio.run(through_egress())
    wrong = [one for one in found if not one.ok]
    details = "".join(f"\n  {'ok' if one.ok else 'BROKEN'}: {one.name}: {one.detail}" for one in found)
    if wrong:
        raise HookError(f"egress is not as it should be. {' '.join(dict.fromkeys(one.fix for one in wrong))}{details}")
    unknown = "" if os.environ["EGRESS_PROBE"] else " (egress.probe names no host that it is to reach)"
    return f"egress refuses what it must{unknown}{details}"


async def through_egress() -> list[Found]:
    """What a sandbox finds."""
    gateway = split(os.environ["GATEWAY"])
    api = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
    probe = place("allowed host", os.environ["EGRESS_PROBE"]) if os.environ["EGRESS_PROBE"] else None

    async def node(sandbox: AsyncSandbox) -> list[Place]:
        address = await asyncio.to_thread(lambda: str(status(sandbox)["hostIP"]))
        return [Place("kubelet of its node", address, KUBELET_PORT)]

    async with Client() as client:
        inside = [Place("API server", *api), Place("gateway", *gateway)]
        return await check(client, os.environ["PROBE_IMAGE"], probe=probe, inside=inside, of=node)


def status(sandbox: Sandbox | AsyncSandbox) -> dict[str, object]:
    """The status of a sandbox's pod, which has its address and its node's."""
    found: dict[str, object] = call("GET", f"/api/v1/namespaces/{os.environ['SANDBOXES']}/pods/{sandbox.id}")["status"]
    return found


def split(place: str) -> tuple[str, int]:
    """The IP address and the port of ``host:port``."""
    host, _, port = place.rpartition(":")
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][4]
    return str(found[0]), int(port)


def main() -> int:
    """Returns the exit status: 0 if a sandbox started, has the required kernel, is isolated, and was deleted.

    Where egress is installed: also if it refuses what it must.
    """
    try:
        with Sandbox.create(os.environ["RUNTIME_IMAGE"], ttl=300) as sandbox:
            sys.stdout.write(f"{first_exec(sandbox)}\n")
            sys.stdout.write(f"{network(sandbox)}\n")
        sys.stdout.write(f"{egress()}\n")
    except (HookError, ApiError, OSError) as error:
        sys.stderr.write(f"rollbox test: {error}\n")
        return 1
    except SandboxError as error:
        sys.stderr.write(f"rollbox test: {error.code}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
