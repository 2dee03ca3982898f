"""NeMo Gym's sandbox provider on rollbox sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nemo_gym.sandbox import (
    ConnectableProvider,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.attribution import resolve_attribution, resolve_run_id

import rollbox
from rollbox import SandboxError
from rollbox.errors import SandboxNotFound
from rollbox_integrations import outcome
from rollbox_integrations.nemo_gym import specification
from rollbox_integrations.nemo_gym.failure import (
    NO_CODE,
    TIMEOUT,
    RollboxCallError,
    RollboxCreateError,
    RollboxExecResult,
)

# What an exec may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
_ROOT = "0"
_DAY_S: Final = 24 * 3600.0
_START_S: Final = 600.0
_STATES = {
    "pending": SandboxStatus.STARTING,
    "starting": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "ending": SandboxStatus.STOPPED,
    "ended": SandboxStatus.STOPPED,
}


class RollboxProvider(SandboxProvider, SupportsSandboxEndpoint, ConnectableProvider):
    """Sandboxes of NeMo Gym's environments and agents.

        sandbox:
          rollbox: {egress: offline}

    A command's end is a result, whatever it was. Where the sandbox is lost, `error_type` is "sandbox", and the result
    carries whose fault that was: `failure(result)` has it in the fields of a verify response.
    """

    name = "rollbox"

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - of YAML
        """Take the options of sandboxes; nothing is sent.

        Args:
            options: those of `Sandbox.create` by their names there, for sandboxes whose spec does not say it.

        Raises:
            ValueError: one is none of them.
        """
        self._defaults = {"ttl": _DAY_S, "start_timeout": _START_S, **specification.checked(options, "sandbox.rollbox")}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """See NeMo Gym. Its `entrypoint` is a command in the background.

        Raises:
            SandboxCreateError: there is no sandbox; `fault` says whose fault it is and whether to mask the sample.
            ValueError: `provider_options` has a name that is no option; nothing is sent.
        """
        attribution = {**resolve_attribution(), "run": resolve_run_id()}
        try:
            options = specification.options(spec, self._defaults, attribution)
            image = specification.image(spec, {**self._defaults, **spec.provider_options})
            sandbox = await rollbox.Sandbox.create(image, **options)
            await _prepare(sandbox, spec)
        except SandboxError as error:
            raise RollboxCreateError(error) from error
        return self._handle(sandbox)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """See NeMo Gym. A cancelled call kills the command, and so does its timeout, in the sandbox."""
        try:
            result = await _sandbox(handle).exec(
                command,
                cwd=cwd,
                env=env,
                timeout=timeout_s,
                user=_user(user),
                max_output_bytes=_MOST_OUTPUT_BYTES,
            )
            ended = outcome.ended(result)
        except SandboxError as error:
            told = outcome.refused(error) or outcome.died(error)
            if told is None:
                return RollboxExecResult(error)
            return _result(told)
        return _result(ended, NO_CODE, TIMEOUT) if result.timed_out else _result(ended)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """See NeMo Gym. Missing directories are made; written as root, as with its Docker."""
        try:
            await _sandbox(handle).files.upload(source_path, target_path, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """See NeMo Gym."""
        await asyncio.to_thread(target_path.parent.mkdir, parents=True, exist_ok=True)
        try:
            await _sandbox(handle).files.download(source_path, target_path, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """See NeMo Gym. Cost: one request."""
        try:
            record = await _sandbox(handle).refresh()
        except SandboxNotFound:
            return SandboxStatus.STOPPED
        except SandboxError:
            return SandboxStatus.UNKNOWN
        return _STATES.get(record.state, SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """See NeMo Gym. The port is private: requests need the headers, which are a credential for the sandbox."""
        try:
            exposed = await _sandbox(handle).ports.expose(port)
        except SandboxError as error:
            raise RollboxCallError(error) from error
        return SandboxEndpoint(endpoint=exposed.url.rstrip("/"), headers=dict(exposed.headers))

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        """See NeMo Gym. The id is enough for a process that has the owner's key.

        Raises:
            ValueError: a scope is asked for; there are none.
        """
        if scope is not None:
            raise ValueError(f"scope {scope!r}: rollbox has no leases for parts of a sandbox")
        return {"sandbox_id": handle.sandbox_id}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """See NeMo Gym. The sandbox stays on the lease of the process that has made it."""
        try:
            return self._handle(await rollbox.Sandbox.connect(descriptor["sandbox_id"]))
        except SandboxError as error:
            raise RollboxCreateError(error) from error

    async def close(self, handle: SandboxHandle) -> None:
        """See NeMo Gym: deletes it. One that has ended is a success."""
        try:
            await _sandbox(handle).delete()
        except SandboxError as error:
            raise RollboxCallError(error) from error

    async def aclose(self) -> None:
        """See NeMo Gym. Connections are those of the event loop, and end with the last sandbox on it."""

    def _handle(self, sandbox: rollbox.Sandbox) -> SandboxHandle:
        return SandboxHandle(sandbox_id=sandbox.id, provider_name=self.name, raw=sandbox)


async def _prepare(sandbox: rollbox.Sandbox, spec: SandboxSpec) -> None:
    """Make the directory of its commands, as Docker does, and start what it is to serve; else delete it."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sandbox)
        if spec.workdir:
            await sandbox.files.mkdir(spec.workdir, user=_ROOT)
        if spec.entrypoint:
            await sandbox.spawn(spec.entrypoint, cwd=spec.workdir, stdin=False, output_waits=False)
        stack.pop_all()


def _sandbox(handle: SandboxHandle) -> rollbox.Sandbox:
    if not isinstance(handle.raw, rollbox.Sandbox):
        raise TypeError(f"the handle of {handle.sandbox_id!r} is of provider {handle.provider_name!r}")
    return handle.raw


def _user(user: str | int | None) -> str | None:
    """Images without a list of users have root too."""
    return _ROOT if user == "root" else None if user is None else str(user)


def _result(ended: outcome.Outcome, code: int | None = None, error_type: str | None = None) -> SandboxExecResult:
    stdout, stderr = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
    return SandboxExecResult(stdout, stderr, ended.status if code is None else code, error_type)


def _told(error: SandboxError) -> Exception:
    match error.code:
        case "file_not_found":
            return FileNotFoundError(str(error))
        case "permission_denied":
            return PermissionError(str(error))
    return RollboxCallError(error)
