"""The checks of ``rollbox doctor``: whether this machine has what ``rollbox up`` needs."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.engine.client import EngineClient
from controlplane.cluster.engine.machine import LIMITS, describe
from controlplane.embedded import binaries, state
from controlplane.embedded.engines import INSTALL, engine, is_root
from controlplane.embedded.up_error import UpError
from controlplane.errors import Problem
from controlplane.settings import SettingError

NO_NEW_PRIVS: Final = (
    'Take no-new-privileges out of the settings of the engine, or run what needs root with `user="root"`.'
)
SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
# As it is where the kernel has no such setting.
ANY: Final = "0"
TRACE: Final = (
    "`sysctl kernel.yama.ptrace_scope=0` on this machine; or start programs under the debugger (`gdb --args`, "
    "`strace -f`, `py-spy record --`)."
)


async def probe(
    state_dir: Path, wanted_engine: str | None = None, environ: Mapping[str, str] = os.environ
) -> list[CheckResult]:
    """Runs all checks; leaves no changes behind. Cost: under a second, more if Podman has to be started."""
    return [_root(), *_programs(environ), *_state(state_dir), *await _engine(wanted_engine, environ)]


def _root() -> CheckResult:
    return finding("root", is_root(), f"running as uid {os.geteuid()}", "Run `rollbox up` with sudo.")


def _programs(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    for name in ("egress", "sidecar", "target"):
        found = binaries.find(name, environ)
        ok = found is not None and found.is_file()
        yield finding(
            f"rollbox-{name}", ok, str(found or "not found"), "Run `make ready`, or install the wheels again."
        )
    try:
        yield CheckResult("rollbox-gateway", True, " ".join(binaries.gateway_command(environ)))
    except UpError as trouble:
        yield CheckResult("rollbox-gateway", False, trouble.detail, trouble.fix)


def _state(state_dir: Path) -> Iterator[CheckResult]:
    try:
        state.check_length(state_dir)
        yield CheckResult("socket paths", True, f"{state_dir} is short enough")
    except SettingError as error:
        yield CheckResult("socket paths", False, str(error), "Give a shorter --state-dir.")
    holder = next(folder for folder in (state_dir, *state_dir.parents) if folder.exists())
    writable = os.access(holder, os.W_OK | os.X_OK)
    detail = f"{state_dir} can {'' if writable else 'not '}be used"
    yield finding("state directory", writable, detail, "Give another --state-dir.")


async def _engine(wanted: str | None, environ: Mapping[str, str]) -> list[CheckResult]:
    # A temporary state directory: a Podman service that is started for the check must not collide with that of a
    # running `rollbox up`.
    with tempfile.TemporaryDirectory(prefix="rollbox-") as scratch:
        try:
            async with engine(wanted, Path(scratch), environ) as found, EngineClient.connect(found.url) as client:
                info, version = await client.call("GET", "info"), await client.call("GET", "version")
                return [_found(info, version, found.origin), *_offers(info)]
        except UpError as trouble:
            return [CheckResult("engine", False, trouble.detail, trouble.fix)]
        except Problem as problem:
            return [CheckResult("engine", False, problem.detail, INSTALL)]


def _found(info: Mapping[str, Any], version: Mapping[str, Any], origin: str) -> CheckResult:
    what = describe(info, version)
    return CheckResult("engine", True, f"{what.engine_name} {what.engine_version} ({origin})")


def _offers(info: Mapping[str, Any]) -> Iterator[CheckResult]:
    yield CheckResult(
        "runtime", True, f"{info.get('DefaultRuntime', 'unknown')}: sandboxes share this machine's kernel"
    )
    yield CheckResult(
        "cgroups", True, f"version {info.get('CgroupVersion', 'unknown')}, {info.get('CgroupDriver', 'unknown')}"
    )
    missing = [ours for theirs, ours in LIMITS.items() if not info.get(theirs)]
    detail = "no limit on " + ", ".join(missing) if missing else "memory, processes and cpu can be limited"
    yield finding("limits", not missing, detail, "Enable the cgroup controllers, and run the engine as root.")
    yield from _programs_may(info)
    yield CheckResult("gVisor", True, _gvisor(info))


def _programs_may(info: Mapping[str, Any]) -> Iterator[CheckResult]:
    """What programs of a sandbox meet that the engine or this machine's kernel decides."""
    fixed = any("no-new-privileges" in str(option) for option in info.get("SecurityOptions") or ())
    detail = "`sudo`, `su` and others change no user" if fixed else "`sudo` and `su` change the user"
    yield CheckResult("setuid programs", not fixed, detail, NO_NEW_PRIVS if fixed else "", needed=False)
    scope = SCOPE.read_text().strip() if SCOPE.is_file() else ANY
    some = f"they attach to no running process: kernel.yama.ptrace_scope is {scope}"
    detail = "they attach to running processes of their user" if scope == ANY else some
    yield CheckResult("debuggers", scope == ANY, detail, "" if scope == ANY else TRACE, needed=False)


def _gvisor(info: Mapping[str, Any]) -> str:
    runtime = (info.get("Runtimes") or {}).get("runsc")
    # Podman lists all runtimes that it supports, whether they are installed or not.
    if runtime is None or not Path(str(runtime.get("path", ""))).is_file():
        return "not offered by this engine"
    return "offered by this engine; rollbox uses it on Kubernetes only"
