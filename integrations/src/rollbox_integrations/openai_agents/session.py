"""openai-agents' `BaseSandboxSession` on a rollbox sandbox: commands, files, ports and the workspace's archive."""

from __future__ import annotations

import io
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, cast

from agents.sandbox import ExposedPortEndpoint, User
from agents.sandbox.errors import ExecTimeoutError
from agents.sandbox.session import BaseSandboxSession, SandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult
from agents.sandbox.workspace_paths import sandbox_path_str
from yarl import URL

from rollbox import Sandbox, SandboxError
from rollbox.errors import PermissionDenied
from rollbox_integrations import outcome
from rollbox_integrations.openai_agents import archive, faults
from rollbox_integrations.openai_agents.running import Running
from rollbox_integrations.openai_agents.state import RollboxSandboxSessionState

_logger = getLogger(__name__)
# What an exec may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# A file up to this size is sent from memory, and sent again where the connection breaks.
_IN_MEMORY_BYTES = 16 * 1024**2
_LEAST_TIMEOUT_S = 0.001
_ROOT = "0"


class RollboxSandboxSession(BaseSandboxSession):
    """A session's sandbox, deleted with the session; its lease ends one that a killed program leaves behind.

    A command's end is a result, whatever it was. That there is no sandbox any more, or that the platform does not
    answer, is an `ExecTransportError`; `error.context["rollbox"]` says whose fault it was and whether to mask.

    Attributes:
        sandbox: rollbox's own, for what openai-agents has no call for: network policies, checkpoints, grading.
    """

    state: RollboxSandboxSessionState

    def __init__(self, state: RollboxSandboxSessionState, sandbox: Sandbox) -> None:
        """Use `RollboxSandboxClient` instead."""
        self.state = state
        self.sandbox = sandbox
        self._running = Running()
        self._dead: SandboxError | None = None

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """See openai-agents. The user is the sandbox's: its image needs no `sudo`."""
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._exec_as(words, timeout, _name(user))

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        return await self._exec_as([str(word) for word in command], timeout, None)

    async def _exec_as(self, words: Sequence[str], limit_s: float | None, user: str | None) -> ExecResult:
        self._require_alive(words)
        try:
            result = await self.sandbox.exec(
                list(words), timeout=_seconds(limit_s), max_output_bytes=_MOST_OUTPUT_BYTES, **await self._at(user)
            )
            if result.timed_out:
                raise ExecTimeoutError(
                    command=words,
                    timeout_s=limit_s,
                    context={"stdout": result.stdout, "stderr": result.stderr},
                )
            ended = outcome.ended(result)
        except SandboxError as error:
            ended = self._failed(error, words)
        return ExecResult(stdout=ended.stdout, stderr=ended.stderr, exit_code=ended.status)

    def supports_pty(self) -> bool:
        """See openai-agents."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a command, and tell what it has written so far. See openai-agents.

        Cancel safety: the command is killed with all that it has started.
        """
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        self._require_alive(words)
        options = {**await self._at(_name(user)), "timeout": _seconds(timeout)}
        try:
            return await self._running.start(
                self.sandbox, words, options, tty=tty, yield_s=yield_time_s, most_tokens=max_output_tokens
            )
        except SandboxError as error:
            return _update(self._failed(error, words))

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Type into a command that runs, and tell what it has written since. See openai-agents."""
        try:
            return await self._running.write(session_id, chars, yield_s=yield_time_s, most_tokens=max_output_tokens)
        except SandboxError as error:
            return _update(self._failed(error, [f"write_stdin {session_id}"]))

    async def pty_terminate_all(self) -> None:
        """Kill all commands that run on. See openai-agents."""
        await self._running.aclose()

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Read a file; one over 16 MiB is kept on this machine's disk. See openai-agents."""
        place = sandbox_path_str(await self._validate_path_access(path))
        data = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
        try:
            async for part in self.sandbox.files.open_read(place, user=_name(user)):
                data.write(part)
        except BaseException as error:
            data.close()
            if isinstance(error, SandboxError):
                raise faults.of_read(error, Path(path)) from error
            raise
        data.seek(0)
        return cast("io.IOBase", data)

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        place = sandbox_path_str(await self._validate_path_access(path))
        try:
            return await self.sandbox.files.read(place, length=max_bytes)
        except SandboxError as error:
            raise faults.of_read(error, Path(path)) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file: the old content stays until all data have come. See openai-agents."""
        place = sandbox_path_str(await self._validate_path_access(path, for_write=True))
        payload = coerce_write_payload(path=Path(path), data=data)
        small = payload.content_length is not None and payload.content_length <= _IN_MEMORY_BYTES
        content: Any = payload.stream.read() if small else payload.stream
        try:
            await self.sandbox.files.write(place, content, user=_name(user))
        except SandboxError as error:
            raise faults.of_write(error, Path(path)) from error

    async def running(self) -> bool:
        """See openai-agents."""
        try:
            return (await self.sandbox.refresh()).state == "running"
        except SandboxError:
            return False

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive, made by the image's `tar` in one stream. See openai-agents."""
        skipped = self._persist_workspace_skip_relpaths() | self._mount_relpaths_within_workspace()
        return await archive.persisted(self.sandbox, self._workspace_root_path(), skipped)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Put an archive into the workspace, by the image's `tar`. See openai-agents."""
        await archive.hydrated(self.sandbox, self._workspace_root_path(), data)

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            exposed = await self.sandbox.ports.expose(port, public=True)
        except SandboxError as error:
            raise faults.of_port(port, self.state.exposed_ports, error) from error
        if exposed.host_url is None:
            raise faults.of_port(port, self.state.exposed_ports)
        url = URL(exposed.host_url)
        return ExposedPortEndpoint(host=url.host or "", port=url.port or 0, tls=url.scheme == "https")

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    async def _prepare_backend_workspace(self) -> None:
        """Make the workspace's directory, for the sandbox's user, since commands begin there."""
        root = self.state.manifest.root
        try:
            try:
                await self.sandbox.files.mkdir(root)
            except PermissionDenied:
                who = (await self.sandbox.exec("echo $(id -u):$(id -g)", cwd="/", check=True)).stdout.strip()
                await self.sandbox.files.mkdir(root, user=_ROOT)
                await self.sandbox.exec(["chown", who, root], cwd="/", user=_ROOT, check=True)
        except SandboxError as error:
            raise faults.of_start(error, root) from error

    async def _shutdown_backend(self) -> None:
        try:
            await self.sandbox.delete()
        except SandboxError as error:
            _logger.warning("sandbox %s was not deleted, its lease ends it: %s", self.sandbox.id, error)

    async def _at(self, user: str | None) -> dict[str, Any]:
        """Where, with which variables and as whom a command runs."""
        variables = await self.state.manifest.environment.resolve()
        return {"cwd": self.state.manifest.root, "env": variables, "user": user}

    def _require_alive(self, words: Sequence[str]) -> None:
        if self._dead is not None:
            raise faults.of_command(self._dead, words) from self._dead

    def _failed(self, error: SandboxError, words: Sequence[str]) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise faults.of_command(error, words) from error


def sandbox_of(session: BaseSandboxSession) -> Sandbox:
    """Return the SDK's sandbox of a session, for what openai-agents has no call for.

    Raises:
        TypeError: the session is another provider's.
    """
    inner = session._inner if isinstance(session, SandboxSession) else session  # noqa: SLF001 - as openai-agents does
    if not isinstance(inner, RollboxSandboxSession):
        raise TypeError(f"{type(inner).__name__} is no session of rollbox")
    return inner.sandbox


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user or None


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None else max(_LEAST_TIMEOUT_S, timeout)


def _update(ended: outcome.Outcome) -> PtyExecUpdate:
    return PtyExecUpdate(
        process_id=None, output=ended.stdout + ended.stderr, exit_code=ended.status, original_token_count=None
    )
