"""Before an install or upgrade: does a pod of the runtime class start, with the promised kernel, held by policies?

Those of the release are not there before an install, and a check behind it would leave sandboxes open until it has
failed. So the probe has policies of its own, made as a sandbox's are: they let it reach one port of this very pod,
which stands for the readiness port, and nothing else.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from controlplane.reach import attempts
from controlplane.reach.listening import listening
from controlplane.reach.ways import OWN_NODE, READY, Way

from .api import HookError, Json, run
from .network import closed, isolation
from .probe import probed, report_of, runtime_of

# The policies are as old as this pod: until then they may take effect.
PATIENCE_S: Final = 8.0


def preflight(settings: Json) -> str:
    """Starts a pod as a sandbox is, reads its kernel, and compares what it reaches with what this pod does.

    Raises:
        HookError: it does not start, its kernel is another one, or no policy holds it.
    Cost: as long as a pod takes to start, and up to 20 s.
    """
    pod, network = settings["pod"], settings["network"]
    with ExitStack() as stack:
        ways: list[Way] = []
        if network is not None:
            me, ports = os.environ["POD_IP"], (network["readyPort"], network["otherPort"])
            stack.enter_context(listening(ports, me))
            ways = tried(me, *ports)
        # Beside the probe, since silence takes its time; where the probe's node is shows later.
        outside = stack.enter_context(ThreadPoolExecutor(1)).submit(
            attempts.look, [way.from_outside() for way in ways if way.host != OWN_NODE]
        )
        ended_pod = probed(pod, ways, float(settings["timeoutSeconds"]))
        report = report_of(ended_pod)
        check_kernel(pod, str(report["kernel"]), str(settings["requiredKernel"]))
        said = f"runtime class {runtime_of(pod)!r} starts pods with the kernel {report['kernel']!r}"
        if network is None:
            return said
        meant = [way.of_node(str(ended_pod["status"]["hostIP"])) for way in ways]
        try:
            told = isolation(
                *(meant, attempts.told(report["seen"])), accepted=bool(network["accepted"]), known=outside.result()
            )
        except HookError as error:
            raise HookError(f"nothing was changed: {error}") from error
    return f"{said}; {told}"


def tried(me: str, ready_port: int, other_port: int) -> list[Way]:
    """What the probe tries, this pod at the address ``me`` included."""
    patient = [replace(way, patience_s=PATIENCE_S) for way in closed(Way("port of another pod", me, other_port))]
    return [*patient, Way(READY, me, ready_port, must_work=True, patience_s=PATIENCE_S)]


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
