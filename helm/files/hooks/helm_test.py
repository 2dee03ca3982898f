"""What `helm test` does, as a user would: a sandbox, a command in it, a look at its kernel; and what it reaches."""

import json
import os
import socket
import sys

from controlplane.reach import attempts
from controlplane.reach.attempts import Seen
from controlplane.reach.ways import READY, Way, dumped
from rollbox.sync import Sandbox

from .api import ApiError, HookError, call
from .network import closed, isolation

NEIGHBOUR = "agent port of another sandbox"
AGENT_PORT = 7070
# The sandbox has been let through already; a node that is busy may let a connection wait.
PATIENCE_S = 15.0


def first_exec(sandbox: Sandbox) -> str:
    """Runs a command.

    Raises:
        HookError: it fails, or its kernel is not the one that was promised.
    """
    required = os.environ["REQUIRED_KERNEL"]
    result = sandbox.exec("cat /proc/version", timeout=60)
    said = f"{sandbox.id}: exit code {result.exit_code}, kernel {result.stdout.strip()}"
    if result.exit_code or not (required == "any" or required.lower() in result.stdout.lower()):
        raise HookError(said)
    return said


def network(neighbour: Sandbox) -> str:
    """What another sandbox reaches, of the neighbour too.

    Raises:
        HookError: what it must not, or not what it must.
    """
    with Sandbox.create(os.environ["PROBE_IMAGE"], ttl=300) as sandbox:
        node, address = str(status(sandbox)["hostIP"]), str(status(neighbour)["podIP"])
        gateway, ready = (split(os.environ[name]) for name in ("GATEWAY", "READY"))
        found = closed(Way("gateway", *gateway), Way(NEIGHBOUR, address, AGENT_PORT))
        ways = [one.of_node(node) for one in (*found, Way(READY, *ready, must_work=True, patience_s=PATIENCE_S))]
        result = sandbox.exec(["python3", "-m", "controlplane.reach", dumped(ways)], timeout=120, check=True)
    inside = attempts.told(json.loads(result.stdout)["seen"])
    # No policy lets this pod in there; the gateway, whose way it is, has just run a command through that port.
    return isolation(ways, inside, accepted=os.environ["ACCEPT_UNENFORCED"] == "true", known={NEIGHBOUR: Seen("open")})


def status(sandbox: Sandbox) -> dict[str, object]:
    """What the cluster says of its pod: where it is."""
    found: dict[str, object] = call("GET", f"/api/v1/namespaces/{os.environ['SANDBOXES']}/pods/{sandbox.id}")["status"]
    return found


def split(place: str) -> tuple[str, int]:
    """The address and the port of ``host:port``."""
    host, _, port = place.rpartition(":")
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][4]
    return str(found[0]), int(port)


def main() -> int:
    """The exit status: 0 when a sandbox came, ran a command in the promised kernel, is isolated, and went."""
    try:
        with Sandbox.create(os.environ["RUNTIME_IMAGE"], ttl=300) as sandbox:
            sys.stdout.write(f"{first_exec(sandbox)}\n")
            sys.stdout.write(f"{network(sandbox)}\n")
    except (HookError, ApiError, OSError) as error:
        sys.stderr.write(f"rollbox test: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
