"""How far the clocks of nodes are from this machine's: by the leases that kubelets renew, by their own time."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient

NODES: Final = "/api/v1/nodes"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# Kubelets renew every ten seconds.
RENEWED_WITHIN_S: Final = 15.0
LOOK_EVERY_S: Final = 0.3
# Of the look, of the call and of a kubelet that is busy.
BEARABLE_S: Final = 2.0
KEEP: Final = (
    "Have all nodes and this machine keep the time (chrony, systemd-timesyncd). Clocks that differ make ages, "
    "deadlines and the lag of routes wrong, and tokens and certificates may count as not yet valid. If all nodes are "
    "off by the same, it is this machine's clock."
)


async def check(client: KubernetesClient, clock: Clock) -> CheckResult:
    """Waits until each lease was renewed. Cost: up to 15 s.

    Raises:
        Problem: the API server does not answer.
    """
    off_s, silent = await _heard(client, clock)
    return judged(off_s, silent)


def judged(off_s: Mapping[str, float], silent: int) -> CheckResult:
    """The finding. Pure.

    Args:
        off_s: by node, how far its clock was ahead (below 0: behind) when its renewal was heard of.
        silent: how many nodes renewed nothing meanwhile.
    """
    far = {name: one for name, one in sorted(off_s.items()) if abs(one) > BEARABLE_S}
    wrong = [f"{name} is {abs(one):.1f} s {'ahead' if one > 0 else 'behind'}" for name, one in far.items()]
    most = max((abs(one) for one in off_s.values()), default=0.0)
    right = f"{len(off_s)} nodes are within {most:.1f} s of this machine" if off_s else "no node has renewed its lease"
    said = f"; {silent} did not renew their lease in {RENEWED_WITHIN_S:.0f} s" if silent else ""
    return finding("clocks", bool(off_s) and not wrong, ("; ".join(wrong) or right) + said, KEEP)


async def _heard(client: KubernetesClient, clock: Clock) -> tuple[Mapping[str, float], int]:
    # A lease stays behind when its node is removed.
    nodes = {str(one["metadata"]["name"]) for one in (await client.list(NODES, {})).items}
    first = {name: at for name, at in (await _renewals(client)).items() if name in nodes}
    off_s: dict[str, float] = {}
    until_s = asyncio.get_running_loop().time() + RENEWED_WITHIN_S
    while first.keys() - off_s.keys() and asyncio.get_running_loop().time() < until_s:
        await asyncio.sleep(LOOK_EVERY_S)
        seen = await _renewals(client)
        now_s = clock.now_ms() / 1000
        for name, at in seen.items():
            if name not in off_s and name in first and at != first[name]:
                off_s[name] = datetime.fromisoformat(at).timestamp() - now_s
    return off_s, len(first.keys() - off_s.keys())


async def _renewals(client: KubernetesClient) -> Mapping[str, str]:
    found = (await client.list(LEASES, {})).items
    told = {str(one["metadata"]["name"]): (one.get("spec") or {}).get("renewTime") for one in found}
    return {name: str(at) for name, at in told.items() if at}
