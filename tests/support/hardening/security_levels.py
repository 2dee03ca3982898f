"""Which level of Kubernetes' Pod Security Standards a pod keeps to (as of v1.34, for Linux). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.support.hardening.containers import containers

Json = dict[str, Any]
BASELINE_CAPABILITIES: Final = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
RESTRICTED_VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
PROFILES: Final = ("RuntimeDefault", "Localhost")


def level(pod: Json) -> str:
    """``restricted``, ``baseline`` or ``privileged``: the strictest that takes it."""
    if any(_beyond_baseline(pod)):
        return "privileged"
    return "baseline" if any(_beyond_restricted(pod)) else "restricted"


def why_not(pod: Json, wanted: str) -> list[str]:
    """What keeps a pod from a level, in words."""
    return [*_beyond_baseline(pod), *(_beyond_restricted(pod) if wanted == "restricted" else ())]


def _contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    for one in containers(pod):
        yield one["name"], one.get("securityContext", {})


def _beyond_baseline(pod: Json) -> Iterator[str]:
    spec, own = pod["spec"], pod["spec"].get("securityContext", {})
    yield from (one for one in ("hostNetwork", "hostPID", "hostIPC") if spec.get(one))
    yield from ("hostPath" for one in spec.get("volumes", ()) if "hostPath" in one)
    yield from ("hostPort" for one in containers(pod) for port in one.get("ports", ()) if port.get("hostPort"))
    yield from (one for one in ("sysctls", "seLinuxOptions", "windowsOptions") if own.get(one))
    for name, context in (("pod", own), *_contexts(pod)):
        if context.get("privileged"):
            yield f"{name}: privileged"
        if set(context.get("capabilities", {}).get("add", ())) - BASELINE_CAPABILITIES:
            yield f"{name}: capabilities"
        if context.get("procMount", "Default") != "Default":
            yield f"{name}: procMount"
        for profile in ("seccompProfile", "appArmorProfile"):
            if context.get(profile, {}).get("type", PROFILES[0]) not in PROFILES:
                yield f"{name}: {profile}"


def _beyond_restricted(pod: Json) -> Iterator[str]:
    own = pod["spec"].get("securityContext", {})
    for volume in pod["spec"].get("volumes", ()):
        yield from (f"volume {one}" for one in volume.keys() - {"name"} - RESTRICTED_VOLUMES)
    for name, context in _contexts(pod):
        both = {**own, **context}
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: escalation"
        if not both.get("runAsNonRoot") or both.get("runAsUser") == 0:
            yield f"{name}: root"
        if both.get("seccompProfile", {}).get("type") not in PROFILES:
            yield f"{name}: no seccomp"
        capabilities = context.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
            yield f"{name}: capabilities"
