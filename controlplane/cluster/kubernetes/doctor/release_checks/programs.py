"""A pod that asks the gateway for a sandbox, which looks at what programs may do there. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult
from controlplane.cluster.kubernetes.doctor.release_checks import asking
from controlplane.cluster.kubernetes.doctor.release_checks.inside import OTHERWISE
from controlplane.cluster.kubernetes.doctor.releases import Release

PROGRAM: Final = ("python3", "-m", "rollbox.program_check")


def manifest(release: Release, name: str, gateway: asking.Place) -> dict[str, Any]:
    """The pod.

    Args:
        release: the release.
        name: of the pod.
        gateway: the Service of the gateway.
    """
    return asking.manifest(release, name, PROGRAM, gateway, {})


def judged(release: Release, status: Mapping[str, Any]) -> Iterator[CheckResult]:
    """What the pod has found; sandboxes can be used without it, so none of it is needed.

    Args:
        release: the release.
        status: of the pod.
    """
    try:
        for name, ok, detail, fix in asking.told(status):
            yield CheckResult(f"{name} of {release.name}", ok, detail, fix, needed=False)
    except ValueError:
        detail = f"not tried: the pod ended with {asking.said(status) or 'no message'}"
        yield CheckResult(f"programs of {release.name}", False, detail, OTHERWISE, needed=False)
