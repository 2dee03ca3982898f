"""Checks of the sandboxes' isolation: the RuntimeClass, the nodes that have its runtime, and a sandbox's kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from controlplane.capacity import NOTHING, Amounts
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.nodes.pod_requests import read
from controlplane.cluster.protocol import DEFAULT_PIDS, Description
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A RuntimeClass: the runtime's handler on the nodes, and the selector and tolerations for nodes that have it.

    Attributes:
        overhead: what it adds to the requests of every pod.
    """

    handler: str
    selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, object]]
    overhead: Amounts = NOTHING


async def runtime(client: KubernetesClient, runtime_class: str) -> Runtime:
    """Reads a RuntimeClass.

    Raises:
        Problem: isolation_missing, if there is no such class.
    """
    try:
        found = await client.get(f"/apis/node.k8s.io/v1/runtimeclasses/{runtime_class}")
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        detail = f"the cluster has no RuntimeClass {runtime_class}: install gVisor on the nodes and create it"
        raise Problem("isolation_missing", detail, runtime_class=runtime_class) from refused
    scheduling = found.get("scheduling") or {}
    return Runtime(
        str(found["handler"]),
        scheduling.get("nodeSelector") or {},
        scheduling.get("tolerations") or (),
        read((found.get("overhead") or {}).get("podFixed") or {}),
    )


def check_nodes(fleet: Fleet, nodes: Sequence[Node]) -> None:
    """Refuses a cluster on which no sandbox can run with the configured isolation.

    Raises:
        Problem: internal, if there is no node for sandboxes; isolation_missing, if none of them has the runtime.
    """
    # Also one that is cordoned or drained: a control plane that starts meanwhile serves what runs there.
    wanted = [one for one in nodes if one.lasting().takes(fleet.selector, fleet.tolerations)]
    if not wanted:
        labels = ", ".join(f"{key}={value}" for key, value in fleet.selector.items()) or "any"
        wish = f"labels {labels}, {len(fleet.tolerations)} tolerations"
        raise Problem("internal", f"none of the {len(nodes)} nodes takes sandboxes ({wish})")
    if not any(fleet.isolates(one) for one in wanted):
        names = ", ".join(sorted(one.name for one in wanted)[:5])
        detail = f"no node has the runtime {fleet.handler} that the RuntimeClass names; looked at {names}"
        raise Problem("isolation_missing", detail, handler=fleet.handler)


def check_kernel(kernel: str, required: str) -> None:
    """See ``Sandboxes.check_kernel``.

    Args:
        kernel: ``/proc/version``, as read by a command in the sandbox.
        required: text that ``kernel`` must contain, ignoring case; ``any``: no check.
    """
    if required.lower() != ANY and required.lower() not in kernel.lower():
        detail = f"the sandbox runs on the kernel {kernel[:200]!r}, which is not {required}"
        raise Problem("isolation_missing", detail, required_kernel=required)


def pids_limit(required: str) -> int | None:
    """The default limit of processes in a sandbox; None if they cannot be limited.

    Kubernetes has no such limit for a single pod. gVisor's kernel counts the processes of one sandbox; a shared kernel
    counts those of the whole node, and for any other required kernel it is unknown.
    """
    return DEFAULT_PIDS if "gvisor" in required.lower() else None


def check_pids(spec: SandboxSpec, what: Description) -> None:
    """Refuses a limit of processes that nothing would enforce.

    Raises:
        Problem: unsupported, naming the option.
    """
    if spec.pids_limit is not None and what.pids_limit is None:
        detail = f"pids_limit {spec.pids_limit}: Kubernetes has no such limit for one pod, gVisor has; leave it out"
        raise Problem("unsupported", detail, option="pids_limit")


def describe(version: str, runtime_class: str, handler: str, required: str) -> Description:
    """The description of the cluster.

    Args:
        version: of the API server.
        runtime_class: that sandboxes run under.
        handler: of that class.
        required: the kernel that every sandbox must show, or ``any``: it is not checked then.
    """
    checked = required.lower() != ANY
    isolation = required if checked else handler
    how = f"RuntimeClass {runtime_class} (handler {handler})"
    proof = f"every sandbox's kernel is checked for {required}" if checked else "the kernel of sandboxes is not checked"
    return Description(
        backend="kubernetes",
        engine_name="kubernetes",
        engine_version=version,
        isolation=isolation,
        isolation_detail=f"{how}; {proof}",
        network="none but the platform's readiness port",
        pids_limit=pids_limit(required),
    )
