"""A pod like a sandbox that looks at its kernel, and then takes more memory than it may: both are compared. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.pods import podspec

Json = dict[str, Any]
PROGRAM: Final = ("python3", "-m", "controlplane.reach.greedy")
# The pod's limit is 128 MiB.
TAKES_MEBIBYTES: Final = 512
ISOLATE: Final = (
    "The RuntimeClass {runtime_class} leads to another runtime on that node: see its handler in containerd's settings, "
    "and docs/node-agent.md. Without gVisor only the node's kernel is between sandboxes."
)
LIMIT: Final = (
    "Sandboxes of that node can take all its memory: see that its kubelet and containerd use the same cgroup driver, "
    "that the memory controller is enabled, and that the runtime is not told to ignore cgroups (`ignore-cgroups`)."
)
OTHERWISE: Final = (
    "The image of the control plane may be of another version than this program: take a doctor of its version, or "
    "upgrade."
)
KILLED: Final = 137
# On a virtual machine of two cores systrap took 10.6 microseconds for a call and ptrace 23; KVM takes less than either.
SLOW_NS: Final = 8_000
SWITCH: Final = (
    'Set `platform = "systrap"`, or "kvm" where nodes have /dev/kvm, under `[runsc_config]` in the settings of the '
    "handler's shim (docs/node-agent.md): ptrace is far slower. On a node with much other work, look again later."
)

# Of gVisor's overlay, which is what counts the bytes that a sandbox writes.
OVERLAY: Final = "overlay"
COUNT: Final = (
    'Take `overlay2 = "none"` out of the `[runsc_config]` of the handler\'s shim on that node (docs/node-agent.md): by '
    "default, `root:self`, gVisor counts what a sandbox writes. Until then have sandboxes with a disk limit made with "
    '`pull="full"`, which their kubelet counts (docs/lazy.md).'
)


def manifest(release: Release, name: str) -> Json:
    """The pod, restricted like the sandboxes of a release."""
    pod = network_check.pod(
        name,
        release.sandboxes,
        podspec.policy_labels(release.name),
        release.image,
        (*PROGRAM, str(TAKES_MEBIBYTES), "/dev/termination-log"),
        runtimeClassName=release.runtime_class,
        nodeSelector=dict(release.node_selector),
        tolerations=[dict(one) for one in release.tolerations],
        imagePullSecrets=[{"name": one} for one in release.pull_secrets],
    )
    # As sandboxes: in front of a root that nobody may write to gVisor has no overlay.
    pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = False
    return pod


def judged(release: Release, node: str, status: Mapping[str, Any], required: str) -> Iterator[CheckResult]:
    """What its end says of the kernel and of limits.

    Args:
        release: the release.
        node: that it ran on.
        status: of the pod.
        required: the kernel that sandboxes must show; ``any``: not looked at.
    """
    ends: Sequence[Json] = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    end = ends[0] if ends else {}
    told = _told(str(end.get("message") or ""))
    if "kernel" not in told:
        said = f"{end.get('reason')} {end.get('exitCode')} {end.get('message') or ''}".strip()
        yield CheckResult(
            f"limits of {release.name}", False, f"not tried: the pod on {node} ended with {said}", OTHERWISE
        )
        return
    kernel = str(told["kernel"])
    ok = required == "any" or required.lower() in kernel.lower()
    fix = ISOLATE.format(runtime_class=release.runtime_class)
    # What follows says who has built it.
    yield finding(f"kernel of {release.name}", ok, f"on {node}: {kernel.partition(' (')[0]}", fix)
    if "gvisor" in kernel.lower():
        yield from _settings(release, node, told.get("platform"))
    took = told.get("took_mebibytes")
    killed = took is None and (end.get("reason") == "OOMKilled" or end.get("exitCode") == KILLED)
    detail = f"on {node}: ended as it took more than the 128 MiB that it may"
    if not killed:
        ended = f"ended with {end.get('reason')} {end.get('exitCode')}"
        detail = f"on {node}: " + (ended if took is None else f"it took {took} MiB where it may have 128")
    yield finding(f"limits of {release.name}", killed, detail, LIMIT)


def _settings(release: Release, node: str, seen: object) -> Iterator[CheckResult]:
    """What follows from gVisor's settings; nothing where an image of before such a check has not looked."""
    if not isinstance(seen, dict):
        return
    yield _platform(release, node, seen)
    if "root" in seen:
        yield _disk_limit(release, node, str(seen["root"]))


def _disk_limit(release: Release, node: str, root: str) -> CheckResult:
    """Whether gVisor counts what is written; without it kubelets do, of images that are fetched whole."""
    name = f"disk limit of {release.name}"
    if root == OVERLAY:
        return CheckResult(
            name, True, f"on {node}: gVisor counts what a sandbox writes, whatever the form of its image"
        )
    detail = (
        f"on {node}: gVisor has no overlay in front of an image (`overlay2`): what is written to one that is mounted "
        "lazily is not counted, and no image is made of a sandbox"
    )
    return CheckResult(name, False, detail, COUNT, needed=False)


def _platform(release: Release, node: str, seen: Mapping[str, Any]) -> CheckResult:
    """Which platform of gVisor it is."""
    call_ns = int(seen["call_ns"])
    which = "systrap" if seen["systrap"] else "not systrap with its rewriting of calls, so KVM"
    if slow := not seen["systrap"] and call_ns > SLOW_NS:
        which = "neither systrap with its rewriting of calls, nor KVM: calls are too slow"
    detail = f"on {node}: {which}; a system call takes {call_ns / 1000:.1f} µs"
    return finding(f"platform of {release.name}", not slow, detail, SWITCH)


def _told(message: str) -> Mapping[str, Any]:
    try:
        found = json.loads(message)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
