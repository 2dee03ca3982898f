"""verifiers' custom runtime on rollbox sandboxes."""

from __future__ import annotations

import contextlib
import posixpath
from logging import getLogger
from typing import ClassVar, cast

from pydantic import Field
from verifiers.v1.configs.runtime import CustomRuntimeConfig, NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.backends.custom import CustomRuntimeInfo
from verifiers.v1.runtimes.base import SERVICE_PORT, ProgramResult, RuntimeBackend, RuntimeProcess, parse_gpu
from verifiers.v1.runtimes.runtime import Runtime
from verifiers.v1.utils.scope import run_scope

import rollbox
import rollbox.sync
from rollbox.options import CreateOptions
from rollbox_integrations import outcome
from rollbox_integrations.verifiers.network import OPEN, policy
from rollbox_integrations.verifiers.process import EndedProcess, StreamedProcess

_logger = getLogger(__name__)
# What an exec may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# Programs of a client that is gone end then.
_ORPHAN_GRACE_S = 900.0
_BYTES_PER_GB = 1024**3
_DIRECTORY = "/app"


class RollboxRuntimeConfig(CustomRuntimeConfig, NetworkPolicyConfig):
    """What a sandbox is made of: verifiers' own fields, and options of `Sandbox.create` by their names there."""

    image: str = "python:3.11-slim"
    workdir: str | None = None
    cpu: float | None = None
    memory: float | None = None
    """GB, as in verifiers: 1024**3 bytes."""
    gpu: str | None = None
    disk: float | None = None
    """GB."""
    checkpoint: str | None = None
    pull: str = "auto"
    labels: dict[str, str] = Field(default_factory=dict)
    egress: str | None = None
    """A preset for setup and for tasks without a policy; None: everything that the installation lets out."""
    ttl: float = 24 * 3600.0
    idle_timeout: float | None = None
    start_timeout: float = 600.0


class RollboxRuntimeInfo(CustomRuntimeInfo):
    """What a trace has of its sandbox.

    Attributes:
        fault: whose fault the last failure was that was no command's, and whether to mask the sample.
    """

    fault: dict[str, str | bool] | None = None


class RollboxBackend(RuntimeBackend):
    """A sandbox of a rollout.

        [env.agent.runtime]
        type = "custom"
        import_path = "rollbox_integrations.verifiers.RollboxBackend"
        image = "python:3.12-slim"

    A command's end is a result, whatever it was; all else is a `SandboxError`, and `info.fault`, which the trace has,
    says whose fault it was and whether to mask the sample.
    """

    SUPPORTS_TASK_IMAGES: ClassVar[bool] = True
    SUPPORTS_USER_SWITCHING: ClassVar[bool] = True
    SUPPORTS_PORT_EXPOSURE: ClassVar[bool] = True
    config_class: ClassVar[type[RollboxRuntimeConfig]] = RollboxRuntimeConfig
    info: RollboxRuntimeInfo

    def __init__(self, config: RollboxRuntimeConfig, name: str | None = None) -> None:
        super().__init__(name)
        self.config = config.model_copy(update={"workdir": config.workdir or _DIRECTORY})
        self.info = RollboxRuntimeInfo(**self.config.model_dump())
        self._sandbox: rollbox.Sandbox | None = None
        self._dead: rollbox.SandboxError | None = None

    @property
    def sandbox(self) -> rollbox.Sandbox:
        """The SDK's own, for what verifiers has no call for.

        Raises:
            SandboxError: it was not started, or is deleted.
        """
        if self._sandbox is None:
            raise SandboxError("the sandbox was not started, or is deleted")
        return self._sandbox

    async def start(self) -> None:
        """See verifiers."""
        gpu_type, gpus = parse_gpu(self.config.gpu)
        if gpu_type is not None:
            raise SandboxError(f"gpu {self.config.gpu!r} names a kind; rollbox takes a number of devices")
        try:
            self._sandbox = await rollbox.Sandbox.create(
                None if self.config.checkpoint else self.config.image, **self._options(gpus)
            )
            self.info.id = self._sandbox.id
            await self._sandbox.files.mkdir(self._place(""))
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    def _options(self, gpus: int) -> CreateOptions:
        config = self.config
        given = {
            "checkpoint": config.checkpoint,
            "cpu": config.cpu,
            "memory": None if config.memory is None else round(config.memory * _BYTES_PER_GB),
            "disk": None if config.disk is None else round(config.disk * _BYTES_PER_GB),
            "gpu": gpus,
            "pull": config.pull,
            "env": self.env,
            "labels": {**config.labels, "rollbox.host": "verifiers", "verifiers.run": run_scope()},
            "egress": config.egress or OPEN,
            "ttl": config.ttl,
            "idle_timeout": config.idle_timeout,
            "start_timeout": config.start_timeout,
        }
        return cast("CreateOptions", {name: value for name, value in given.items() if value is not None})

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        """See verifiers."""
        self._require_alive()
        try:
            process = await self.sandbox.spawn(
                argv,
                cwd=self.config.workdir,
                env=runtime.process_env(env),
                user=runtime.user,
                orphan_grace=_ORPHAN_GRACE_S,
            )
        except rollbox.SandboxError as error:
            return EndedProcess(self._failed(error))
        return StreamedProcess(process, self._told)

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """See verifiers. One request; of an output over 16 MiB the end is kept."""
        self._require_alive()
        try:
            result = await self.sandbox.exec(
                argv,
                cwd=self.config.workdir,
                env=runtime.process_env(env),
                user=runtime.user,
                max_output_bytes=_MOST_OUTPUT_BYTES,
            )
            ended = outcome.ended(result)
        except rollbox.SandboxError as error:
            ended = self._failed(error)
        return ProgramResult(ended.status, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        """See verifiers. It needs no connection, and ends with the sandbox."""
        self._require_alive()
        script = 'log=$1; shift; exec "$@" > "$log" 2>&1 < /dev/null'
        try:
            await self.sandbox.spawn(
                ["sh", "-c", script, "sh", log, *argv],
                cwd=self.config.workdir,
                env=runtime.process_env(env),
                user=runtime.user,
                stdin=False,
                output_waits=False,
            )
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        """See verifiers."""
        if max_bytes == 0:
            return b""
        try:
            return await self.sandbox.files.read(self._place(path), length=max_bytes, user=runtime.user)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        """See verifiers."""
        try:
            await self.sandbox.files.write(self._place(path), data, user=runtime.user)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
        """See verifiers: the policy is in force when this returns."""
        if not self.network_restricted:
            return
        try:
            wanted = (self.config.egress or OPEN) if routes is None else policy(network or self.config, routes)
            await self.sandbox.egress(wanted)
        except ValueError as error:
            raise SandboxError(str(error)) from error
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    @property
    def published_port(self) -> int:
        """See verifiers: each sandbox has all ports to itself."""
        return SERVICE_PORT

    async def expose(self, port: int) -> str:
        """See verifiers. Anyone who has the address may use it until the sandbox ends."""
        try:
            return (await self.sandbox.ports.expose(port, public=True)).url.rstrip("/")
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def teardown(self) -> None:
        """See verifiers. Its lease ends a sandbox that could not be deleted."""
        self._background.clear()
        if self._sandbox is None:
            return
        try:
            await self._sandbox.delete()
        except rollbox.SandboxError as error:
            _logger.warning("sandbox %s was not deleted, its lease ends it: %s", self._sandbox.id, error)
        self._sandbox = None

    def cleanup(self) -> None:
        """See verifiers: for the end of a program whose loop is gone."""
        if self._sandbox is not None:
            with contextlib.suppress(rollbox.SandboxError), rollbox.sync.Client() as client:
                client.delete(self._sandbox.id)
            self._sandbox = None

    def _require_alive(self) -> None:
        if self._dead is not None:
            raise self._told(self._dead) from self._dead

    def _failed(self, error: rollbox.SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise self._told(error) from error

    def _told(self, error: rollbox.SandboxError) -> SandboxError:
        """Put a failure into the trace, and say it in verifiers' words."""
        self.info.fault = cast("dict[str, str | bool]", outcome.fault(error))
        return SandboxError(outcome.sentence(error))

    def _place(self, path: str) -> str:
        return posixpath.join(self.config.workdir or _DIRECTORY, path)
