"""The sidecar of a pod shares its network with the user's code, and takes no call from there."""

from __future__ import annotations

import pytest

from rollbox import Sandbox
from tests.support.addresses import pod_address
from tests.support.agent_calls import (
    CALLS,
    NO_EFFECTS,
    called_from_inside,
    calls,
    effects,
    forged,
    own,
    takes_its_own_token_only,
    victim,
)
from tests.support.installed import Installed, own_cluster

PORT = 7070
# Opens connections and holds them until its input ends.
FLOOD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) for _ in range(2000)]
print(len(held), flush=True)
sys.stdin.read()
"""


async def test_no_method_can_be_called_from_inside_whatever_the_token(stack: Installed, shared: Sandbox) -> None:
    """Not even with the sandbox's own: a connection from inside is closed before a byte of it is looked at."""
    pod = await pod_address(shared.id, stack.sandboxes)
    tokens = [*(token for token, _ in (await forged(stack, shared)).values()), await own(stack, shared)]
    closed = [dict.fromkeys(CALLS, "closed")] * len(tokens)
    async with victim(shared):
        for address, source in (("127.0.0.1", ""), (pod, ""), (pod, "127.0.0.1"), ("127.0.0.1", pod)):
            ended = await called_from_inside(shared, calls(tokens, f"{address}:{PORT}", source))
            assert ended == closed, f"{address} from {source or 'any address'}"
        assert await effects(shared) == NO_EFFECTS


async def test_every_method_takes_the_sandboxs_own_token_and_no_other(stack: Installed, sandbox: Sandbox) -> None:
    """From its node, which no policy keeps from a pod. Shows, too, that the calls made from inside are good ones."""
    if not own_cluster():
        pytest.skip("this machine is no node of a given cluster")
    pod = await pod_address(sandbox.id, stack.sandboxes)
    await takes_its_own_token_only(stack, sandbox, f"{pod}:{PORT}")


async def test_a_flood_of_connections_from_inside_keeps_nobody_out(shared: Sandbox) -> None:
    async with await shared.spawn(["python3", "-c", FLOOD, str(PORT)]) as flood:
        assert await anext(flood.stdout.lines()) == "2000"
        assert (await shared.exec("echo served")).stdout == "served\n"
        await flood.stdin.write_eof()
        assert (await flood.wait()).exit_code == 0
    assert (await shared.exec("echo served")).stdout == "served\n"
