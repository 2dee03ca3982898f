"""``Provider``: what one kind of provider does; and the check of what any of them tells."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Protocol

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.errors import Problem
from controlplane.scaling.node_pool import MOST_NODES, NodePool
from controlplane.scaling.seen import Group, Machine

# A provider that takes longer is one that hangs.
CALL_WITHIN_S: Final = 10.0
MOST_NAME_CHARS: Final = 253
MOST_WHY_CHARS: Final = 200


class Provider(Protocol):
    """See ``NodePools``."""

    async def look(self, pool: NodePool) -> Group:
        """See ``NodePools.look``; not checked yet."""
        ...

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """See ``NodePools.ask``."""
        ...

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """See ``NodePools.remove``; what is on the nodes has been looked at."""
        ...

    async def keep(self, pool: NodePool, node: str) -> None:
        """Takes back what a removal that failed has left at the machine of a node."""
        ...


def checked(pool: NodePool, group: Group) -> Group:
    """What a provider tells, where it is possible.

    Raises:
        Problem: internal: it contradicts itself, or is more than there can be.
    """
    ids = [one.id for one in group.machines]
    nodes = [one.node for one in group.machines if one.node]
    wrong = ""
    if not 0 <= group.target <= MOST_NODES or len(ids) > MOST_NODES:
        wrong = f"{group.target} nodes asked for and {len(ids)} machines; at most {MOST_NODES} are believed"
    elif not all(1 <= len(one) <= MOST_NAME_CHARS for one in ids) or any(len(one) > MOST_NAME_CHARS for one in nodes):
        wrong = f"a machine without a name, or with one of more than {MOST_NAME_CHARS} characters"
    elif len(set(ids)) < len(ids) or len(set(nodes)) < len(nodes):
        wrong = "one machine, or one node, twice"
    if wrong:
        raise Problem("internal", f"the provider of {pool.name} tells {wrong}", node_pool=pool.name)
    machines = [Machine(one.id, one.node, one.failed[:MOST_WHY_CHARS]) for one in group.machines]
    return Group(group.target, machines, group.version, group.names)


async def changed(client: KubernetesClient, path: str, change: Json, pool: NodePool) -> None:
    """Patches an object that names the version by which the change was decided.

    Args:
        client: of its cluster.
        path: of the object.
        change: has ``metadata.resourceVersion``.
        pool: for whom.

    Raises:
        Problem: conflict: it has changed meanwhile; what the API server refuses it for.
    """
    try:
        await client.patch(path, change, within_s=CALL_WITHIN_S)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.CONFLICT:
            raise
        detail = f"{pool.group} has changed since it was looked at"
        raise Problem("conflict", detail, node_pool=pool.name) from refused
