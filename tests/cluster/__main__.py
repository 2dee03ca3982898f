"""The command line of the test cluster.

python -m tests.cluster up|down|status|smoke|env
python -m tests.cluster bare|whole     # containerd without, or again with, gVisor and lazy pulling
python -m tests.cluster restart|stop|kill|start|logs NAME
"""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.cluster import down, foreign, layout, programs, settings, smoke, up
from tests.cluster.kubectl import KubectlError
from tests.cluster.processes import NotReadyError, Program, start, stop, wait_ready
from tests.cluster.toolchain import clients


def _named(name: str) -> Program:
    for program in programs.every():
        if program.name == name:
            return program
    raise SystemExit(f"There is no {name!r}; there are: {', '.join(p.name for p in programs.every())}.")


def _up() -> int:
    if foreign.given():
        return foreign.check()
    up.up()
    return 0


def _env() -> int:
    if foreign.given():
        print(f"export KUBECONFIG={foreign.given()}")
    else:
        containerd = f"CONTAINERD_ADDRESS={layout.CONTAINERD_SOCKET} CONTAINERD_NAMESPACE=k8s.io"
        print(f"export KUBECONFIG={layout.KUBECONFIG} {containerd} PATH={clients()}:$PATH")
    return 0


def _start(program: Program) -> int:
    settings.write()
    start(program)
    wait_ready(program)
    return 0


def _stop(program: Program) -> int:
    stop(program.name)
    return 0


def _kill(program: Program) -> int:
    stop(program.name, signal.SIGKILL)
    return 0


def _restart(program: Program) -> int:
    return _stop(program) or _start(program)


def _logs(program: Program) -> int:
    return subprocess.run(["tail", "-n", "200", str(program.log)], check=False).returncode


def _bare() -> int:
    layout.BARE.touch()
    return _restart(_named("containerd"))


def _whole() -> int:
    layout.BARE.unlink(missing_ok=True)
    return _restart(_named("containerd"))


WHOLE = {
    "bare": _bare,
    "whole": _whole,
    "up": _up,
    "down": down.down,
    "status": up.status,
    "smoke": smoke.smoke,
    "env": _env,
}
PARTS = {"start": _start, "stop": _stop, "kill": _kill, "restart": _restart, "logs": _logs}


def main(arguments: list[str]) -> int:
    """Run one verb."""
    try:
        match arguments:
            case [verb] if verb in WHOLE:
                return WHOLE[verb]()
            case [verb, name] if verb in PARTS:
                return PARTS[verb](_named(name))
    except (NotReadyError, KubectlError) as error:
        print(error, file=sys.stderr)
        return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
