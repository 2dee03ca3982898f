"""What ``rollbox doctor`` looks at: does this machine have what ``rollbox up`` needs?"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.cluster.engine.client import EngineClient
from controlplane.cluster.engine.machine import LIMITS, describe
from controlplane.embedded import binaries, state
from controlplane.embedded.engines import INSTALL, engine, is_root
from controlplane.embedded.trouble import TroubleError
from controlplane.errors import Problem
from controlplane.settings import SettingError


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, whether it is well, what was seen, and what to do if it is not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def _check(name: str, ok: bool, detail: str, fix: str) -> Check:
    return Check(name, ok, detail, "" if ok else fix)


async def probe(
    state_dir: Path, wanted_engine: str | None = None, environ: Mapping[str, str] = os.environ
) -> list[Check]:
    """Looks at everything; changes nothing that stays. Cost: under a second, more when Podman has to be started."""
    return [_root(), *_programs(environ), *_state(state_dir), *await _engine(wanted_engine, environ)]


def _root() -> Check:
    return _check("root", is_root(), f"running as uid {os.geteuid()}", "Run `rollbox up` with sudo.")


def _programs(environ: Mapping[str, str]) -> Iterator[Check]:
    for name in ("sidecar", "target"):
        found = binaries.find(name, environ)
        ok = found is not None and found.is_file()
        yield _check(f"rollbox-{name}", ok, str(found or "not found"), "Run `make build`, or install the wheels again.")
    try:
        yield Check("rollbox-gateway", True, " ".join(binaries.gateway_command(environ)))
    except TroubleError as trouble:
        yield Check("rollbox-gateway", False, trouble.detail, trouble.fix)


def _state(state_dir: Path) -> Iterator[Check]:
    try:
        state.check_length(state_dir)
        yield Check("socket paths", True, f"{state_dir} is short enough")
    except SettingError as error:
        yield Check("socket paths", False, str(error), "Give a shorter --state-dir.")
    holder = next(folder for folder in (state_dir, *state_dir.parents) if folder.exists())
    writable = os.access(holder, os.W_OK | os.X_OK)
    detail = f"{state_dir} can {'' if writable else 'not '}be used"
    yield _check("state directory", writable, detail, "Give another --state-dir.")


async def _engine(wanted: str | None, environ: Mapping[str, str]) -> list[Check]:
    # A directory of its own: a Podman service that is started for the look must not meet the one of a running `up`.
    with tempfile.TemporaryDirectory(prefix="rollbox-") as scratch:
        try:
            async with engine(wanted, Path(scratch), environ) as found, EngineClient.connect(found.url) as client:
                info, version = await client.call("GET", "info"), await client.call("GET", "version")
                return [_found(info, version, found.origin), *_offers(info)]
        except TroubleError as trouble:
            return [Check("engine", False, trouble.detail, trouble.fix)]
        except Problem as problem:
            return [Check("engine", False, problem.detail, INSTALL)]


def _found(info: Mapping[str, Any], version: Mapping[str, Any], origin: str) -> Check:
    what = describe(info, version)
    return Check("engine", True, f"{what.engine_name} {what.engine_version} ({origin})")


def _offers(info: Mapping[str, Any]) -> Iterator[Check]:
    yield Check("runtime", True, f"{info.get('DefaultRuntime', 'unknown')}: sandboxes share this machine's kernel")
    yield Check(
        "cgroups", True, f"version {info.get('CgroupVersion', 'unknown')}, {info.get('CgroupDriver', 'unknown')}"
    )
    missing = [ours for theirs, ours in LIMITS.items() if not info.get(theirs)]
    detail = "no limit on " + ", ".join(missing) if missing else "memory, processes and cpu can be limited"
    yield _check("limits", not missing, detail, "Enable the cgroup controllers, and run the engine as root.")
    yield Check("gVisor", True, _gvisor(info))


def _gvisor(info: Mapping[str, Any]) -> str:
    runtime = (info.get("Runtimes") or {}).get("runsc")
    # Podman lists the runtimes that it knows of, whether they are installed or not.
    if runtime is None or not Path(str(runtime.get("path", ""))).is_file():
        return "not offered by this engine"
    return "offered by this engine; rollbox uses it on Kubernetes only"
