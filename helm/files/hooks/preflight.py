"""The preflight hook, before an install or upgrade: starts a pod of the runtime class, checks its kernel and policies.

The release's own policies do not exist before an install, and a check after it would leave sandboxes unrestricted until
the check has failed. So the probe's pod has policies of its own, the same as a sandbox's: they allow one port of the
hook's pod, which stands for the readiness port, and nothing else.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from controlplane.reach import attempts
from controlplane.reach.listening import listening
from controlplane.reach.ways import OWN_NODE, READY, Way

from .api import HookError, Json, run
from .egress import covered
from .network import closed, isolation, name_server
from .probe import probed, report_of, runtime_of

# The probe's policies are created just before this pod; they may take effect with this delay.
RETRY_FOR_S: Final = 8.0
# A node may apply the policies of a new pod with this delay; a busy node takes longer.
READY_RETRY_FOR_S: Final = 15.0


def preflight(settings: Json) -> str:
    """Starts a pod like a sandbox's, checks its kernel, and compares its network with this pod's.

    Raises:
        HookError: it does not start, it has another kernel, or policies do not restrict it.

    Cost: the start of a pod, and up to 20 s.
    """
    pod, network = settings["pod"], settings["network"]
    with tried(network) as ways, ThreadPoolExecutor(1) as beside:
        # In parallel with the probe, since destinations that do not answer take the full timeout. Not the probe's node,
        # which is not known yet.
        known = beside.submit(attempts.try_all, [way.from_outside() for way in ways if way.host != OWN_NODE])
        probe = probed(pod, ways, float(settings["timeoutSeconds"]))
    report = report_of(probe)
    check_kernel(pod, str(report["kernel"]), str(settings["requiredKernel"]))
    said = f"runtime class {runtime_of(pod)!r} starts pods with the kernel {report['kernel']!r}"
    try:
        said += covered(settings.get("egress"), addresses(probe))
    except HookError as error:
        raise HookError(f"nothing was changed: {error}") from error
    if network is None:
        return said
    meant, inside = [way.of_node(str(probe["status"]["hostIP"])) for way in ways], attempts.read_report(report["seen"])
    try:
        told = isolation(meant, inside, accepted=bool(network["accepted"]), known=known.result())
    except HookError as error:
        raise HookError(f"nothing was changed: {error}") from error
    return f"{said}; {told}"


def addresses(probe: Json) -> dict[str, str]:
    """The cluster's own addresses, as far as this pod and the probe know them."""
    return {
        "API server": os.environ["KUBERNETES_SERVICE_HOST"],
        "cluster DNS": name_server(Path("/etc/resolv.conf").read_text()),
        "node of the probe": str(probe["status"].get("hostIP") or ""),
    }


@contextmanager
def tried(network: Json | None) -> Iterator[list[Way]]:
    """The destinations that the probe tries; this pod listens on its own ones while the block runs.

    Empty if policies are disabled (``network`` is None).
    """
    if network is None:
        yield []
        return
    me, ready, other = os.environ["POD_IP"], network["readyPort"], network["otherPort"]
    retried = [replace(way, retry_for_s=RETRY_FOR_S) for way in closed(Way("port of another pod", me, other))]
    with listening([ready, other], me):
        yield [*retried, Way(READY, me, ready, must_work=True, retry_for_s=READY_RETRY_FOR_S)]


def check_kernel(pod: Json, kernel: str, required: str) -> None:
    """Checks the kernel.

    Raises:
        HookError: it is not the required one.
    """
    if required != "any" and required.lower() not in kernel.lower():
        raise HookError(
            f"a pod of runtime class {runtime_of(pod)!r} has the kernel {kernel!r}, and not {required!r}: "
            "its handler does not isolate. "
            "Nothing was changed. Set runtimeClass.handler to what gVisor is called on the nodes."
        )


if __name__ == "__main__":
    raise SystemExit(run(preflight))
