"""Before an install or upgrade: does a pod of the runtime class start, and is its kernel the promised one?"""

from typing import Final
from urllib.parse import quote

from .api import ApiError, HookError, Json, call, gone, run, wait

HOPELESS: Final = {
    *("ErrImagePull", "ImagePullBackOff", "InvalidImageName"),
    *("CreateContainerConfigError", "RunContainerError"),
}


def preflight(settings: Json) -> str:
    """Starts a pod of the runtime class and reads its kernel.

    Raises:
        HookError: it does not start, or its kernel is another one.
    """
    pod = settings["pod"]
    pods = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    one = f"{pods}/{pod['metadata']['name']}"
    seconds = float(settings["timeoutSeconds"])
    wait(30, lambda: gone("DELETE", one), lambda: f"the pod of an earlier preflight, {one}, does not go away")
    try:
        call("POST", pods, pod)
    except ApiError as error:
        raise HookError(f"the API server refused a pod of runtime class {runtime_of(pod)!r}: {error}") from error
    try:
        late = f"a pod of runtime class {runtime_of(pod)!r} did not start in {seconds:.0f} s"
        wait(seconds, lambda: ended(one), lambda: f"{late}: {reason(one)}")
        kernel = kernel_of(call("GET", one))
    finally:
        gone("DELETE", one)
    required = str(settings["requiredKernel"])
    if required != "any" and required.lower() not in kernel.lower():
        raise HookError(
            f"a pod of runtime class {runtime_of(pod)!r} has the kernel {kernel!r}, and not {required!r}: "
            "its handler does not isolate. "
            "Nothing was changed. Set runtimeClass.handler to what gVisor is called on the nodes."
        )
    return f"runtime class {runtime_of(pod)!r} starts pods with the kernel {kernel!r}"


def runtime_of(pod: Json) -> str:
    """The runtime class that the probe is for."""
    return str(pod["spec"]["runtimeClassName"])


def ended(path: str) -> bool:
    """Whether the pod has ended.

    Raises:
        HookError: it never will.
    """
    pod = call("GET", path)
    for event in events_of(pod):
        told = str(event.get("message"))
        # A network that is not there yet passes by itself; a runtime that is not there does not.
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
    """What was reported about this very pod."""
    meta = pod["metadata"]
    query = quote(f"involvedObject.uid={meta['uid']}")
    events: list[Json] = call("GET", f"/api/v1/namespaces/{meta['namespace']}/events?fieldSelector={query}")["items"]
    return events


def reason(path: str) -> str:
    """Why a pod does not run, in the cluster's words."""
    pod = call("GET", path)
    told = [f"{event.get('reason')}: {event.get('message')}" for event in events_of(pod)]
    return "; ".join(told[-3:]) or f"phase {pod['status'].get('phase')}"


def kernel_of(pod: Json) -> str:
    """What the probe wrote."""
    ends = [status["state"].get("terminated", {}) for status in pod["status"].get("containerStatuses", [])]
    return " ".join(str(end.get("message") or end.get("reason") or "") for end in ends).strip()


if __name__ == "__main__":
    raise SystemExit(run(preflight))
