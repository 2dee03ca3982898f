"""openai-agents' `BaseSandboxClient`: creates, resumes and deletes the sandboxes of sessions."""

from __future__ import annotations

import uuid

from agents.sandbox import Manifest, SnapshotSpec, resolve_snapshot
from agents.sandbox.errors import ConfigurationError, ErrorCode
from agents.sandbox.session import (
    BaseSandboxClient,
    Dependencies,
    Instrumentation,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.snapshot import SnapshotBase

from rollbox import Sandbox, SandboxError
from rollbox_integrations.openai_agents import faults
from rollbox_integrations.openai_agents.session import RollboxSandboxSession
from rollbox_integrations.openai_agents.state import RollboxSandboxClientOptions, RollboxSandboxSessionState

# There is nothing any more to take up again.
_GONE = ("deleted", "oom_killed", "disk_full", "sandbox_not_found")


class RollboxSandboxClient(BaseSandboxClient[RollboxSandboxClientOptions]):
    """Sandboxes for `SandboxAgent`s.

        RunConfig(sandbox=SandboxRunConfig(
            client=RollboxSandboxClient(), options=RollboxSandboxClientOptions(image="python:3.12")
        ))

    The address and the key come from `ROLLBOX_URL` and `ROLLBOX_API_KEY`, or from `rollbox up`.
    """

    backend_id = "rollbox"

    def __init__(
        self, *, instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None
    ) -> None:
        """See openai-agents."""
        self._instrumentation = instrumentation
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: RollboxSandboxClientOptions,
    ) -> SandboxSession:
        """Create a sandbox.

        Raises:
            ConfigurationError: an option or the manifest is wrong.
            WorkspaceStartError: there is none, and that says nothing about the sample.
        """
        manifest = Manifest() if manifest is None else manifest
        self._validate_manifest_for_create(manifest)
        _refuse_paths_of_this_machine(manifest)
        session_id = uuid.uuid4()
        resolved = resolve_snapshot(snapshot, str(session_id))
        sandbox = await _created(options, manifest.root)
        state = RollboxSandboxSessionState(
            session_id=session_id,
            snapshot=resolved,
            manifest=manifest,
            exposed_ports=options.exposed_ports,
            sandbox_id=sandbox.id,
            options=options,
        )
        return self._wrap_session(RollboxSandboxSession(state, sandbox), instrumentation=self._instrumentation)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Take up a session again: its sandbox if that still runs, else another one, which gets its snapshot.

        Raises:
            WorkspaceStartError: as `create`; or the platform does not answer.
        """
        if not isinstance(state, RollboxSandboxSessionState):
            raise TypeError(f"a session of {state.type} is none of rollbox")
        state.assert_path_grants_rebound()
        _refuse_paths_of_this_machine(state.manifest)
        sandbox = await _found(state)
        kept = sandbox is not None
        if sandbox is None:
            sandbox = await _created(state.options, state.manifest.root)
            state.sandbox_id, state.workspace_root_ready = sandbox.id, False
        session = RollboxSandboxSession(state, sandbox)
        session._set_start_state_preserved(kept)  # noqa: SLF001 - its own hook for this
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Delete the sandbox of a session. Idempotent."""
        inner = session._inner  # noqa: SLF001 - as the clients of openai-agents do
        if not isinstance(inner, RollboxSandboxSession):
            raise TypeError(f"{type(inner).__name__} is no session of rollbox")
        await inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """See openai-agents."""
        return self._deserialize_session_state_payload(payload, RollboxSandboxSessionState)


async def _created(options: RollboxSandboxClientOptions, root: str) -> Sandbox:
    try:
        return await Sandbox.create(options.image, **options.of_create())
    except SandboxError as error:
        raise faults.of_create(error, root) from error


async def _found(state: RollboxSandboxSessionState) -> Sandbox | None:
    """Connect to the sandbox of a session; it ends with this program from now on. None: it has ended."""
    try:
        sandbox = await Sandbox.connect(state.sandbox_id, attach=True)
        return sandbox if (await sandbox.refresh()).state == "running" else None
    except SandboxError as error:
        if error.retry == "new_sandbox" or error.code in _GONE:
            return None
        raise faults.of_start(error, state.manifest.root) from error


def _refuse_paths_of_this_machine(manifest: Manifest) -> None:
    """Nothing of this machine can be mounted there: a grant that names a `host_path` would be empty."""
    for grant in manifest.extra_path_grants:
        if grant.host_path is not None:
            raise ConfigurationError(
                message=f"rollbox mounts nothing of this machine: leave host_path out of the grant for {grant.path}",
                error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
                op="start",
                context={"path": grant.path},
                retryable=False,
            )
