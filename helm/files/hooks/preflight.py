"""Before an install or upgrade: does a pod of the runtime class start, with the promised kernel, held by policies?

Those of the release are not there before an install, and a check behind it would leave sandboxes open until it has
failed. So the probe has policies of its own, made as a sandbox's are: they let it reach one port of this very pod,
which stands for the readiness port, and nothing else.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from controlplane.reach import attempts
from controlplane.reach.listening import listening
from controlplane.reach.ways import OWN_NODE, READY, Way

from .api import HookError, Json, run
from .network import closed, isolation
from .probe import probed, report_of, runtime_of

# The policies are as old as this pod: so long they may take to have effect.
PATIENCE_S: Final = 8.0
# What a pod may do is known on its node a little later than the pod is there; on a busy one later still.
READY_PATIENCE_S: Final = 15.0


def preflight(settings: Json) -> str:
    """Starts a pod as a sandbox is, reads its kernel, and compares what it reaches with what this pod does.

    Raises:
        HookError: it does not start, its kernel is another one, or no policy holds it.
    Cost: as long as a pod takes to start, and up to 20 s.
    """
    pod, network = settings["pod"], settings["network"]
    with tried(network) as ways, ThreadPoolExecutor(1) as beside:
        # Beside the probe, since silence takes its time; which node the probe is on shows later.
        known = beside.submit(attempts.look, [way.from_outside() for way in ways if way.host != OWN_NODE])
        probe = probed(pod, ways, float(settings["timeoutSeconds"]))
    report = report_of(probe)
    check_kernel(pod, str(report["kernel"]), str(settings["requiredKernel"]))
    said = f"runtime class {runtime_of(pod)!r} starts pods with the kernel {report['kernel']!r}"
    if network is None:
        return said
    meant, inside = [way.of_node(str(probe["status"]["hostIP"])) for way in ways], attempts.told(report["seen"])
    try:
        told = isolation(meant, inside, accepted=bool(network["accepted"]), known=known.result())
    except HookError as error:
        raise HookError(f"nothing was changed: {error}") from error
    return f"{said}; {told}"


@contextmanager
def tried(network: Json | None) -> Iterator[list[Way]]:
    """What the probe tries, as long as this pod listens for some of it; without policies nothing."""
    if network is None:
        yield []
        return
    me, ready, other = os.environ["POD_IP"], network["readyPort"], network["otherPort"]
    patient = [replace(way, patience_s=PATIENCE_S) for way in closed(Way("port of another pod", me, other))]
    with listening([ready, other], me):
        yield [*patient, Way(READY, me, ready, must_work=True, patience_s=READY_PATIENCE_S)]


def check_kernel(pod: Json, kernel: str, required: str) -> None:
    """Refuses another kernel than the one that was promised.

    Raises:
        HookError: it is another one.
    """
    if required != "any" and required.lower() not in kernel.lower():
        raise HookError(
            f"a pod of runtime class {runtime_of(pod)!r} has the kernel {kernel!r}, and not {required!r}: "
            "its handler does not isolate. "
            "Nothing was changed. Set runtimeClass.handler to what gVisor is called on the nodes."
        )


if __name__ == "__main__":
    raise SystemExit(run(preflight))
