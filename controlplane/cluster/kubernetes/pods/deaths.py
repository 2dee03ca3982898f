"""Derives the death of a sandbox and its cause from its pod object. Pure.

The checks are ordered by how much they say: OOM before eviction, the kubelet's reason for the pod before that for a
container, and the exit code, which says least, last.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import ANNOTATION_ADDRESS, ANNOTATION_UNDONE, SIDECAR, SIDECAR_PORT, TARGET
from controlplane.cluster.kubernetes.pods import mounts
from controlplane.cluster.protocol import Death
from controlplane.errors import Code
from controlplane.model.base import MIB

Pod = Mapping[str, Any]
Verdict = tuple[Code, str]

MAX_WORDS_CHARS: Final = 400
_PULLS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_NEVER_RAN: Final = frozenset(
    {"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "PostStartHookError"}
)
# As sidecar/src/memory_files.rs writes it.
_IN_MEMORY: Final = re.compile(r"^event=memory_files bytes=(\d+)$", re.M)
# The sandbox exceeded its own limit, unlike "the node was low on ...", which another pod may have caused.
_OWN_DISK: Final = re.compile(r"(storage|emptydir).*\bexceed|\bexceed.*(storage|disk)", re.I | re.S)
_MISSING_HANDLER: Final = re.compile(r"no runtime for|runtime ?handler|RuntimeClass", re.I)
_FORMAT: Final = re.compile(r"exec format error|no match for platform|no matching manifest|specified platform", re.I)
_RATE: Final = re.compile(r"\b429\b|too ?many ?requests|rate limit", re.I)
_REFUSED: Final = re.compile(r"\b40[13]\b|unauthori[sz]ed|forbidden|denied|no basic auth|authorization failed", re.I)
_ABSENT: Final = re.compile(r"not found|manifest unknown|name unknown|invalid reference|couldn't parse image", re.I)
# What no node takes, whatever its registry does. Neither a blank nor a plus can be in the name of an image.
_NEVER_TAKEN: Final = (
    (
        re.compile(r"schema 1\b|manifest\.v1\+", re.I),
        "its manifest has schema 1, which no container runtime takes any more: push it anew",
    ),
    (re.compile(r"reports content size of zero"), "it has a layer of zero bytes, which containerd does not take"),
)
# Of containerd, then of CRI-O, for an image whose USER is not in its /etc/passwd or /etc/group.
# What runsc says when it could not make a mount point, and runc.
_IN_THE_WAY: Final = re.compile("reading mounts file|not a directory|read-only file system")
_NO_USER: Final = re.compile(
    r"no (users|groups) found|etc/(passwd|group): no such file|invalid USER value"
    r"|unable to find (user|group) |no matching entries in (passwd|group) file"
)
_NO_ROOM: Final = re.compile(r"no space left on device|disk quota exceeded", re.I)
# Errors for a registry that cannot be reached, which say nothing about whether the image exists.
_UNREACHED: Final = re.compile(r"no such host|dial tcp|i/o timeout|connection refused|TLS|x509|deadline exceeded", re.I)
# Why an image was not pulled: the first that is found holds.
_NOT_PULLED: Final = (
    (_RATE, "the registry limits the rate of pulls; use a mirror or pull secrets"),
    (_FORMAT, "the image is not for the architecture of the node"),
    (_NO_ROOM, "the node has no room for it"),
    (_UNREACHED, "the registry was not reached"),
    (_REFUSED, "the registry refused the pull; check the image pull secrets"),
)
# Transient errors of a node that is busy, or whose container runtime restarts: the kubelet retries the container.
_PASSING: Final = re.compile(r"deadline exceeded|is reserved for|transport is closing|connection (refused|reset)", re.I)
_FULL: Final = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity")
_SHUTDOWN: Final = frozenset({"NodeShutdown", "Shutdown", "Terminated", "Preempting", "Preempted"})
# Exit codes of containers that were ended from outside: by SIGTERM (on which the sidecar exits with 0), by SIGKILL, or
# together with the container runtime.
_ENDED_BY_OTHERS: Final = frozenset({0, 128, 128 + 9, 128 + 15, 255})
# With which a sidecar ends that has found its sandbox's disk limit exceeded, and the last line that it logs then.
_DISK_FULL_EXIT: Final = 73
_DISK_FULL_WORDS: Final = re.compile(r'code=disk_full detail="([^"]*)"')


def death(pod: Pod, node_trouble: str | None = None) -> Death | None:
    """The death of a pod; None while it runs or may still start, if need be on another node (``turned_away``).

    Args:
        pod: the API's object, or the part of it that ``trimmed`` keeps.
        node_trouble: why its node is considered lost; None if it is not, or is not known.
    """
    if undone(pod) or turned_away(pod) is not None:
        return None
    for judge in (_memory, _evicted, _rejected, _waiting):
        if (verdict := judge(pod)) is not None:
            return _death(pod, verdict)
    if node_trouble is not None:
        return _death(pod, ("node_lost", node_trouble))
    for judge in (misplaced, _deleted, _ended):
        if (verdict := judge(pod)) is not None:
            return _death(pod, verdict)
    return None


def undone(pod: Pod) -> bool:
    """Whether it is deleted so that its sandbox can be started anew."""
    return bool((pod["metadata"].get("annotations") or {}).get(ANNOTATION_UNDONE))


def turned_away(pod: Pod) -> str | None:
    """Why its kubelet has refused it, before anything of it ran, so that it can start elsewhere; None: it has not."""
    status = _status(pod)
    reason = str(status.get("reason") or "")
    if status.get("phase") != "Failed" or not reason.startswith(_FULL):
        return None
    return f"the node turned the pod away: {reason}: {_cut(str(status.get('message') or ''))}"


def misplaced(pod: Pod) -> Verdict | None:
    """The verdict for a pod with another address than its readiness push named: the push was forged; else None."""
    pushed = str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_ADDRESS) or "")
    own = str(_status(pod).get("podIP") or "")
    if not pushed or not own or pushed in (f"http://{own}:{SIDECAR_PORT}", f"http://[{own}]:{SIDECAR_PORT}"):
        return None
    return "sandbox_lost", f"its readiness push was forged: it named {_cut(pushed)}, and its pod has the address {own}"


def unexplained(pod: Pod) -> bool:
    """Whether a pod has ended and the reason may still follow.

    When a kubelet evicts a pod or shuts down, it reports first the end of the containers, then the pod's phase, and
    with that or later the reason.
    """
    if _status(pod).get("reason") or pod["metadata"].get("deletionTimestamp"):
        return False
    ends = [ended for _, ended in _terminated(pod)]
    return bool(ends) and all(
        one.get("exitCode") in _ENDED_BY_OTHERS and one.get("reason") in (None, "", "Completed", "Error", "Unknown")
        for one in ends
    )


def eviction(words: str, reason: str = "Evicted") -> Verdict:
    """The verdict for an eviction, by its message."""
    if _OWN_DISK.search(words):
        return "disk_full", _cut(words)
    return "sandbox_evicted", f"{reason}: {_cut(words)}"


def asked_to_end(pod: Pod) -> bool:
    """Whether the sidecar has exited with 0: it does so only when the whole pod is ended, and a reason follows."""
    return any(role == SIDECAR and ended.get("exitCode") == 0 for role, ended in _terminated(pod))


def sandbox_trouble(message: str) -> Verdict | None:
    """The verdict for the kubelet's message about a pod sandbox that it cannot create; None if a retry may succeed."""
    if _MISSING_HANDLER.search(message):
        return "isolation_missing", f"the node lacks the runtime of the RuntimeClass: {_cut(message)}"
    return None


def unscheduled(pod: Pod) -> str | None:
    """The scheduler's reason why the pod fits on no node; None if it is scheduled, or was not considered yet."""
    for one in _status(pod).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return _cut(str(one.get("message") or one.get("reason") or "no reason given"))
    return None


def _death(pod: Pod, verdict: Verdict) -> Death:
    return Death(str(pod["metadata"]["name"]), *verdict)


def _memory(pod: Pod) -> Verdict | None:
    for role, ended in _terminated(pod):
        if ended.get("reason") == "OOMKilled":
            killed = f"the kernel killed the {role} (exit code {ended.get('exitCode')})"
            return "oom_killed", f"it took more memory than its limit: {killed}{_files_in_memory(pod)}"
    return None


def _files_in_memory(pod: Pod) -> str:
    """What the sidecar said last of them: it looks once a second while something runs."""
    told = [_IN_MEMORY.findall(str(ended.get("message"))) for role, ended in _terminated(pod) if role == SIDECAR]
    found = [int(size_bytes) for lines in told for size_bytes in lines[-1:]]
    return f"; {found[0] // MIB} MiB of it were files in /dev/shm when last looked at" if any(found) else ""


def _evicted(pod: Pod) -> Verdict | None:
    status = _status(pod)
    disruption = _disruption(pod)
    if status.get("reason") != "Evicted" and disruption is None:
        return None
    reason = str(disruption.get("reason") if disruption else "Evicted")
    words = _cut(str(status.get("message") or (disruption or {}).get("message") or reason))
    if reason == "DeletionByPodGC":
        return "node_lost", words
    return eviction(words, reason)


def _rejected(pod: Pod) -> Verdict | None:
    """The verdict by the kubelet's reason for the pod as a whole."""
    status = _status(pod)
    reason, words = str(status.get("reason") or ""), _cut(str(status.get("message") or ""))
    if reason == "NodeLost":
        return "node_lost", words or "the node controller has given the node up"
    if status.get("phase") != "Failed":
        return None
    if reason in _SHUTDOWN:
        return "sandbox_evicted", f"{reason}: {words}"
    return None


def _waiting(pod: Pod) -> Verdict | None:
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        role, image = str(container.get("name")), str(container.get("image") or "")
        if reason == "CreateContainerError" and _PASSING.search(message):
            continue
        if role == TARGET and (why := mounts.image_unavailable(pod, image, message)):
            return "dataset_unavailable", why
        if reason == "InvalidImageName":
            return "image_not_found", f"{image} is not the name of an image: {_cut(message)}"
        if reason in _PULLS:
            return _pull(role, image, message or reason)
        if reason in _NEVER_RAN:
            return _unrunnable(role, image, f"{reason}: {message}")
    return None


def _deleted(pod: Pod) -> Verdict | None:
    if not pod["metadata"].get("deletionTimestamp"):
        return None
    return "sandbox_lost", "its pod was deleted from outside rollbox"


def _ended(pod: Pod) -> Verdict | None:
    for role, ended in _terminated(pod):
        reason, message = str(ended.get("reason") or ""), str(ended.get("message") or "")
        if reason in ("StartError", "ContainerCannotRun"):
            if role == TARGET and (paths := mounts.paths(pod)) and _IN_THE_WAY.search(message):
                why = f"not everything can be mounted at {', '.join(paths)}: the image has a file there"
                return "unsupported", f"{why}, or begins in a folder that a data set lacks: {_cut(message)}"
            return _unrunnable(role, "", f"{reason}: {message}")
        if role == SIDECAR and ended.get("exitCode") == _DISK_FULL_EXIT:
            told = _DISK_FULL_WORDS.search(message)
            return "disk_full", _cut(told[1]) if told else "more is written than its disk limit allows"
        # Only the sidecar's message is shown; the target's output is the user's.
        words = f"; its last words: {_last_line(message)}" if role == SIDECAR and message else ""
        return "sandbox_lost", f"the {role} ended with exit code {ended.get('exitCode')} ({reason}){words}"
    phase = _status(pod).get("phase")
    if phase in ("Failed", "Succeeded"):
        return "sandbox_lost", f"its pod is {phase}: {_cut(str(_status(pod).get('message') or 'no reason given'))}"
    return None


def _pull(role: str, image: str, message: str) -> Verdict:
    # The image's name is removed before matching, since it may contain any of these words.
    words = message
    for name in filter(None, (image, _repository(image))):
        words = words.replace(name, "")
    told = f"{image}: {_cut(message)}"
    if role == SIDECAR:
        return "internal", f"the sidecar's own image cannot be pulled: {told}"
    for sign, why in _NEVER_TAKEN:
        if sign.search(words):
            return "unsupported", f"{why}: {told}"
    for sign, why in _NOT_PULLED:
        if sign.search(words):
            return "image_pull_failed", f"{why}: {told}"
    return ("image_not_found" if _ABSENT.search(words) else "image_pull_failed"), told


def _unrunnable(role: str, image: str, words: str) -> Verdict:
    if _FORMAT.search(words):
        return "image_pull_failed", f"the image {image} is not for the architecture of the node: {_cut(words)}"
    if _MISSING_HANDLER.search(words):
        return "isolation_missing", _cut(words)
    if role == TARGET and _NO_USER.search(words):
        why = "its USER is not in its /etc/passwd or /etc/group: add it there, or name it by its number"
        return "unsupported", f"image {image} cannot run here: {why}: {_cut(words)}"
    if _NO_ROOM.search(words):
        return "capacity_unavailable", f"the node has no room for the sandbox's files: {_cut(words)}"
    return "internal", f"the {role} could not be started: {_cut(words)}"


def _disruption(pod: Pod) -> Mapping[str, Any] | None:
    for one in _status(pod).get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            found: Mapping[str, Any] = one
            return found
    return None


def last_words(pod: Pod) -> str:
    """The last line of a container that has ended, where none of them runs what users give; empty: there is none."""
    return next((line for _, one in _terminated(pod) if (line := _last_line(str(one.get("message") or "")))), "")


def _terminated(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for container in _containers(pod):
        if ended := (container.get("state") or {}).get("terminated"):
            yield str(container.get("name")), ended


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    """The statuses of both containers, the sidecar's first, since its message explains more."""
    found = [one for one in _status(pod).get("containerStatuses") or () if one.get("name") in (SIDECAR, TARGET)]
    return sorted(found, key=lambda one: str(one["name"]))


def _status(pod: Pod) -> Mapping[str, Any]:
    status: Mapping[str, Any] = pod.get("status") or {}
    return status


def _repository(name: str) -> str:
    folder, slash, last = name.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _last_line(text: str) -> str:
    return next((line.strip()[:MAX_WORDS_CHARS] for line in reversed(text.splitlines()) if line.strip()), "")


def _cut(text: str) -> str:
    return text.strip()[:MAX_WORDS_CHARS]
