"""Whether the names of sandboxes lead to their pods: what the DNS of a release serves, against the pods. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.finding import Finding, finding

Json = Mapping[str, Any]
MOST_NAMED: Final = 5
MEND: Final = (
    "docs/runbooks/RollboxDnsDisagreement.md: remove EndpointSlices of the sandboxes' Services (shard-N) that "
    "Kubernetes did not make, and see whether its endpointslice controller runs."
)


def agree(name: str, slices: Sequence[Json], pods: Sequence[Json]) -> Finding:
    """Compares the EndpointSlices of the sandboxes' Services, which the DNS serves, with the addresses of the pods.

    Args:
        name: of the release.
        slices: those in the sandboxes' namespace.
        pods: the sandboxes' own.
    """
    served: dict[str, set[str]] = {}
    for one in slices:
        for endpoint in one.get("endpoints") or ():
            served.setdefault(str(endpoint.get("hostname")), set()).update(map(str, endpoint["addresses"]))
    wrong = []
    for pod in pods:
        about, address = pod["metadata"], (pod.get("status") or {}).get("podIP")
        has = served.get(about["name"], set())
        if address and "deletionTimestamp" not in about and has - {address}:
            wrong.append(f"{about['name']} is at {address}, and its name says {', '.join(sorted(has))}")
    more = [f"{len(wrong) - MOST_NAMED} more"] if len(wrong) > MOST_NAMED else []
    right = f"the names of {len(pods)} sandboxes say no address that is not theirs"
    return finding(f"DNS of {name}", not wrong, "; ".join([*wrong[:MOST_NAMED], *more]) or right, MEND)
