"""The teardown hook, before an uninstall: stops the control plane and ends all sandboxes of the installation."""

from typing import Final
from urllib.parse import quote

from .api import Json, call, gone, run, wait

# A node can delete few sandboxes at the same time; more at once only slow it down.
ENDING_AT_ONCE: Final = 16
# So many of the sandboxes that do not end are named.
NAMED: Final = 5
FINALIZER: Final = "rollbox.dev/tombstone"


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
    namespace = f"/api/v1/namespaces/{settings['sandboxNamespace']}"
    if gone("GET", namespace):
        return "the sandboxes' namespace is not there"
    pods = f"{namespace}/pods"
    selected = f"{pods}?labelSelector={quote(settings['sandboxes'])}"
    count = len(call("GET", selected)["items"])
    wait(
        seconds,
        lambda: none_left(pods, selected),
        lambda: left(settings["sandboxNamespace"], call("GET", selected)["items"]),
    )
    return f"{count} sandboxes ended"


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
