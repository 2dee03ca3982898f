"""Whether the names of sandboxes lead to their pods: what the DNS of a release serves, against the pods. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding

Json = Mapping[str, Any]
MOST_NAMED: Final = 5
MEND: Final = (
    "docs/runbooks/RollboxDnsDisagreement.md: remove EndpointSlices of the sandboxes' Services (shard-N) that the "
    "control plane did not make, and see in its log (`names`) whether it may write them."
)
# A sandbox has its name a few seconds after it has its address.
SETTLES: Final = timedelta(seconds=30)


def settled(now: datetime) -> str:
    """A pod that has been ready since then has its name; as the API server writes it."""
    return (now - SETTLES).strftime("%Y-%m-%dT%H:%M:%SZ")


def agree(name: str, slices: Sequence[Json], pods: Sequence[Json], since: str = "") -> CheckResult:
    """Compares the EndpointSlices of the sandboxes' Services, which the DNS serves, with the addresses of the pods.

    Args:
        name: of the release.
        slices: those in the sandboxes' namespace.
        pods: the sandboxes' own.
        since: a sandbox that has been ready since then must have a name; empty: they need none.
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
        elif address and not has and _ready_before(pod, since):
            wrong.append(f"{about['name']} is at {address}, and has no name")
    more = [f"{len(wrong) - MOST_NAMED} more"] if len(wrong) > MOST_NAMED else []
    right = f"the names of {len(pods)} sandboxes say no address that is not theirs"
    return finding(f"DNS of {name}", not wrong, "; ".join([*wrong[:MOST_NAMED], *more]) or right, MEND)


def _ready_before(pod: Json, since: str) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    ready = (one for one in pod["status"].get("conditions") or () if one["type"] == "Ready" and one["status"] == "True")
    return any(str(one.get("lastTransitionTime") or since) < since for one in ready)
