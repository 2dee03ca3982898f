"""The teardown hook, before an uninstall: stops the control plane, frees nodes, and ends all sandboxes."""

import http.client
import time
from typing import Final
from urllib.parse import quote

from .api import ApiError, HookError, Json, call, gone, run, wait

# A node can delete few sandboxes at the same time; more at once only slow it down.
ENDING_AT_ONCE: Final = 16
# So many of the sandboxes that do not end are named.
NAMED: Final = 5
FINALIZER: Final = "rollbox.dev/tombstone"
# What the operator gives nodes where the chart's installer is enabled.
TAINT: Final = "rollbox.dev/unproven"
ANNOTATION: Final = "rollbox.dev/node"
# Nodes are freed within this time, or left: an uninstall does not fail for them.
FREED_WITHIN_S: Final = 60.0


def teardown(settings: Json) -> str:
    """Scales control plane and operator to zero, then deletes all sandboxes of this installation.

    Raises:
        HookError: the control plane does not stop, or sandboxes are left when the time is over.
    """
    seconds = float(settings["timeoutSeconds"])
    deployments = f"/apis/apps/v1/namespaces/{settings['namespace']}/deployments"
    for name in settings["deployments"]:
        gone("PATCH", f"{deployments}/{name}/scale", {"spec": {"replicas": 0}})
    makers = f"/api/v1/namespaces/{settings['namespace']}/pods?labelSelector={quote(settings['makers'])}"
    wait(seconds, lambda: not call("GET", makers)["items"], lambda: "the control plane does not stop")
    freed = free(settings) if settings["nodes"] else ""
    namespace = f"/api/v1/namespaces/{settings['sandboxNamespace']}"
    if gone("GET", namespace):
        return f"the sandboxes' namespace is not there{freed}"
    pods = f"{namespace}/pods"
    selected = f"{pods}?labelSelector={quote(settings['sandboxes'])}"
    count = len(call("GET", selected)["items"])
    wait(
        seconds,
        lambda: none_left(pods, selected),
        lambda: left(settings["sandboxNamespace"], call("GET", selected)["items"]),
    )
    return f"{count} sandboxes ended{freed}"


def free(settings: Json) -> str:
    """Takes from all nodes what the operator gave them; how that went, in words. Never fails, and ends in its time."""
    deadline = time.monotonic() + FREED_WITHIN_S
    try:
        # Until then it would give it again.
        operator = f"/api/v1/namespaces/{settings['namespace']}/pods?labelSelector={quote(settings['operator'])}"
        wait(FREED_WITHIN_S / 2, lambda: not call("GET", operator)["items"], lambda: "the operator does not stop")
        nodes = [one for one in call("GET", "/api/v1/nodes")["items"] if marked(one)]
    except (HookError, ApiError, OSError) as error:
        return f"; taints of nodes are left ({error}): {lifts()}"
    left = [one["metadata"]["name"] for one in nodes if time.monotonic() > deadline or not unmark(one)]
    if left:
        return f"; {len(left)} nodes keep their taint ({', '.join(left[:NAMED])}): {lifts()}"
    return f"; {len(nodes)} nodes freed of {TAINT} and {ANNOTATION}"


def lifts() -> str:
    """The command that does it by hand."""
    return f"`kubectl taint nodes --all {TAINT}-`"


def marked(node: Json) -> bool:
    """Whether a node has anything of the operator's."""
    taints = node["spec"].get("taints") or []
    return ANNOTATION in (node["metadata"].get("annotations") or {}) or any(one["key"] == TAINT for one in taints)


def unmark(node: Json) -> bool:
    """Frees one node; whether it is free. Its list of taints is replaced as a whole: if nobody else has written."""
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    try:
        for _ in range(5):
            taints = [one for one in node["spec"].get("taints") or [] if one["key"] != TAINT]
            about = {"resourceVersion": node["metadata"].get("resourceVersion"), "annotations": {ANNOTATION: None}}
            try:
                gone("PATCH", path, {"metadata": about, "spec": {"taints": taints or None}})
            except ApiError as error:
                if error.status != http.client.CONFLICT:
                    raise
                node = call("GET", path)
            else:
                return True
    except (ApiError, OSError):
        pass
    return False


def left(namespace: str, items: list[Json]) -> str:
    """What is to be done about sandboxes that do not end, in words."""
    told = [f"{one['metadata']['name']} on {one['spec'].get('nodeName') or 'no node'}" for one in items[:NAMED]]
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return (
        f"{len(items)} sandboxes do not end: {', '.join(told)}{more}. What keeps their nodes from stopping them, "
        f"`kubectl describe pod -n {namespace} NAME` says. Run the uninstall again; for a sandbox that its node cannot "
        "stop, end what runs of it on the node, and `kubectl delete pod --force` it before"
    )


def none_left(pods: str, selected: str) -> bool:
    """One round: deletes some sandboxes, and removes the finalizers of those that are being deleted."""
    items: list[Json] = call("GET", selected)["items"]
    ending = [one for one in items if one["metadata"].get("deletionTimestamp")]
    for one in ending:
        kept = [name for name in one["metadata"].get("finalizers", []) if name != FINALIZER]
        if len(kept) < len(one["metadata"].get("finalizers", [])):
            gone("PATCH", f"{pods}/{one['metadata']['name']}", {"metadata": {"finalizers": kept}})
    living = [one for one in items if not one["metadata"].get("deletionTimestamp")]
    for one in living[: max(0, ENDING_AT_ONCE - len(ending))]:
        gone("DELETE", f"{pods}/{one['metadata']['name']}")
    return not items


if __name__ == "__main__":
    raise SystemExit(run(teardown))
