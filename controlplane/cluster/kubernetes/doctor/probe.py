"""The checks of ``rollbox doctor --cluster``: whether the cluster has what the chart needs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controlplane.clock import SystemClock
from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor import network, release_checks
from controlplane.cluster.kubernetes.doctor.releases import LABEL_RELEASE, SELECTOR
from controlplane.cluster.kubernetes.marks import LABEL_SANDBOX
from controlplane.cluster.kubernetes.nodes import isolation
from controlplane.cluster.kubernetes.nodes.isolation import Runtime
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.nodes.proof import Proof, tainted
from controlplane.cluster.kubernetes.pods.unstopped import ADVICE, unstopped
from controlplane.errors import Problem

GVISOR: Final = "Install gVisor on the nodes (its runsc and containerd shim) and create the RuntimeClass for it."
ACCESS: Final = "Give a kubeconfig that works: --kubeconfig, or KUBECONFIG."
# Most names in one line of the report.
MOST_NAMED: Final = 5
PROVE: Final = (
    "docs/node-agent.md says what the installer refuses; its pod on the node logs what it does, and "
    "`/payload/rollbox-node again` in that pod has it try at once."
)
OTHER_RELEASE: Final = "Give --release the name of one that is here, or leave it out for all."
MAKE_ROOM: Final = "Make a node ready that has the runtime of the RuntimeClass, or add one."


async def probe(
    kubeconfig: Path, runtime_class: str, image: str, reach: str = "", release: str = ""
) -> list[CheckResult]:
    """Runs all checks, and removes the pods that they start. Cost: see ``network.check`` and ``release_checks``.

    Args:
        kubeconfig: the kubeconfig of the cluster.
        runtime_class: the RuntimeClass of sandboxes.
        image: the control plane's image, for the network check if no release is installed; empty: skip it then.
        reach: what sandboxes are to reach through egress (HOST:PORT), in the place of what releases name.
        release: the only release that is looked at; empty: all.
    """
    try:
        async with KubernetesClient.connect(kubeconfig) as client:
            version = str((await client.get("/version")).get("gitVersion") or "unknown")
            objects = (await client.get("/api/v1/nodes"))["items"]
            nodes = [Node.of(one) for one in objects]
            found = [CheckResult("API server", True, f"Kubernetes {version}, {len(nodes)} nodes")]
            runtime, found_of_it = await _runtime(client, runtime_class, nodes)
            found += [*found_of_it, *_proofs(objects), await _ended(client)]
            releases, missing = await _releases(client, release)
            if missing:
                return [*found, missing]
            found += await release_checks.check(client, SystemClock(), releases, reach)
            return [*found, *await network.check(client, releases, image, runtime_class if runtime else "")]
    except Problem as problem:
        return [CheckResult("API server", False, problem.detail, ACCESS)]


async def _releases(client: KubernetesClient, name: str) -> tuple[Sequence[Mapping[str, Any]], CheckResult | None]:
    """The Deployments of the control planes of all releases, or of one; and what is wrong with its name."""
    there = (await client.list("/apis/apps/v1/deployments", {"labelSelector": SELECTOR})).items
    names = [str(one["metadata"]["labels"].get(LABEL_RELEASE)) for one in there]
    if not name or name in names:
        return [one for one, its in zip(there, names, strict=True) if not name or its == name], None
    here = f"there are {', '.join(sorted(names))}" if names else "there is none"
    return [], CheckResult("release", False, f"no release {name} is on this cluster; {here}", OTHER_RELEASE)


async def _runtime(
    client: KubernetesClient, runtime_class: str, nodes: Sequence[Node]
) -> tuple[bool, list[CheckResult]]:
    """Whether the RuntimeClass exists, and the findings about it."""
    there = True
    try:
        runtime = await isolation.runtime(client, runtime_class)
    except Problem as problem:
        if problem.code != "isolation_missing":
            raise
        # The chart creates the class itself; it cannot install the runtime on the nodes.
        there, runtime = False, Runtime("runsc", {}, ())
        named = CheckResult("RuntimeClass", True, f"no {runtime_class} yet: the chart makes it, for the handler runsc")
    else:
        named = CheckResult("RuntimeClass", True, f"{runtime_class} (handler {runtime.handler})")
    return there, [named, *_nodes(Fleet(runtime.selector, runtime.tolerations, runtime.handler), nodes)]


async def _ended(client: KubernetesClient) -> CheckResult:
    """Whether the nodes have stopped the ended sandboxes, of all installations on the cluster."""
    pods = (await client.list("/api/v1/pods", {"labelSelector": LABEL_SANDBOX})).items
    found = unstopped(pods, SystemClock().now_ms())
    names = [f"{one.name} on {one.node} for {one.for_ms // 1000} s" for one in found[:MOST_NAMED]]
    more = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    detail = f"not stopped by their node: {', '.join([*names, *more])}" if found else "all were stopped by their node"
    return finding("ended sandboxes", not found, detail, ADVICE)


def _proofs(nodes: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """What the agents of nodes have told, where an installer keeps nodes."""
    for node in nodes:
        proof, name = Proof.of(node), node["metadata"]["name"]
        if proof is None and not tainted(node):
            continue
        proof = proof or Proof(troubles=["nothing has told of it yet"])
        programs = ", ".join(f"{program} {version}" for program, version in sorted(proof.programs.items()))
        last = f"installer: {proof.installer or 'has not run'}" + (f" ({proof.detail})" if proof.detail else "")
        lazy = [f"it mounts no images lazily now: {proof.lazy_trouble}"] if proof.lazy_trouble else []
        low = [f"its kernel bounds how many it holds: {', '.join(proof.low)}"] if proof.low else []
        detail = "; ".join([*proof.troubles, *lazy, *low, programs or "nothing is installed", last])
        yield finding(f"node {name}", proof.proven, detail, PROVE)


def _nodes(fleet: Fleet, nodes: Sequence[Node]) -> Iterator[CheckResult]:
    have = [one.name for one in nodes if one.handlers is not None and fleet.handler in one.handlers]
    silent = [one.name for one in nodes if one.handlers is None]
    detail = f"{len(have)} of {len(nodes)} nodes have the runtime {fleet.handler}"
    if silent:
        detail += f"; {len(silent)} do not tell (their kubelet is older than 1.30)"
    yield finding("gVisor", bool(have or silent), detail, GVISOR)
    ready = fleet.ready(nodes)
    yield finding("nodes", ready > 0, f"{ready} are ready and take sandboxes", MAKE_ROOM)
