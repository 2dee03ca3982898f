"""Runs the probe, a pod like a sandbox's that tries destinations: starts it, waits for its end, and deletes it."""

import json
import os
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from controlplane.reach.ways import Way, dumped

from .api import ApiError, HookError, Json, call, gone, wait

HOPELESS: Final = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "RunContainerError",
}


def probed(pod: Json, ways: Sequence[Way], seconds: float) -> Json:
    """Runs the probe and deletes it; returns its last pod object.

    Raises:
        HookError: it does not start and end within ``seconds``.
    """
    pods = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    one = f"{pods}/{pod['metadata']['name']}"
    wait(30, lambda: gone("DELETE", one), lambda: f"the pod of an earlier preflight, {one}, does not go away")
    try:
        call("POST", pods, with_ways(pod, ways))
    except ApiError as error:
        raise HookError(f"the API server refused a pod of runtime class {runtime_of(pod)!r}: {error}") from error
    try:
        late = f"a pod of runtime class {runtime_of(pod)!r} did not start in {seconds:.0f} s"
        wait(seconds, lambda: ended(one), lambda: f"{late}: {reason(one)}")
        return call("GET", one)
    finally:
        gone("DELETE", one)


def with_ways(pod: Json, ways: Sequence[Way]) -> Json:
    """The probe's manifest; owned by this pod, so it is garbage-collected if this hook is killed."""
    me = {"apiVersion": "v1", "kind": "Pod", "name": os.environ["POD_NAME"], "uid": os.environ["POD_UID"]}
    (container,) = pod["spec"]["containers"]
    command = ["python3", "-m", "controlplane.reach", dumped(ways), "/dev/termination-log"]
    containers = [{**container, "command": command}]
    return {
        **pod,
        "metadata": {**pod["metadata"], "ownerReferences": [me]},
        "spec": {**pod["spec"], "containers": containers},
    }


def report_of(pod: Json) -> Json:
    """The probe's report, from its termination message.

    Raises:
        HookError: there is no valid report.
    """
    ends = [status["state"].get("terminated", {}) for status in pod["status"].get("containerStatuses", [])]
    told = " ".join(str(end.get("message") or end.get("reason") or "") for end in ends).strip()
    try:
        report: Json = json.loads(told)
    except ValueError:
        raise HookError(f"the probe of the preflight failed: {told}") from None
    return report


def runtime_of(pod: Json) -> str:
    """The probe's runtime class."""
    return str(pod["spec"]["runtimeClassName"])


def ended(path: str) -> bool:
    """Whether the pod has ended.

    Raises:
        HookError: it will never start.
    """
    pod = call("GET", path)
    for event in events_of(pod):
        told = str(event.get("message"))
        # A network that is not ready yet is transient; a missing runtime is not.
        if event.get("reason") == "FailedCreatePodSandBox" and "runtime" in told and "network" not in told:
            raise HookError(
                f"the node cannot start pods of runtime class {runtime_of(pod)!r}: {told}. "
                "gVisor (runsc and containerd-shim-runsc-v1) must be installed and known to containerd on every node "
                "for sandboxes; runtimeClass.handler names it."
            )
    for status in pod["status"].get("containerStatuses", []):
        waiting = status["state"].get("waiting", {})
        if waiting.get("reason") in HOPELESS:
            raise HookError(
                f"the image {status['image']} does not start: {waiting['reason']}: {waiting.get('message', '')}"
            )
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def events_of(pod: Json) -> list[Json]:
    """The Events about this pod, by its uid."""
    meta = pod["metadata"]
    query = quote(f"involvedObject.uid={meta['uid']}")
    events: list[Json] = call("GET", f"/api/v1/namespaces/{meta['namespace']}/events?fieldSelector={query}")["items"]
    return events


def reason(path: str) -> str:
    """Why a pod does not run, from its last Events."""
    pod = call("GET", path)
    told = [f"{event.get('reason')}: {event.get('message')}" for event in events_of(pod)]
    return "; ".join(told[-3:]) or f"phase {pod['status'].get('phase')}"
