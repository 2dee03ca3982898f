"""TRL: Harbor's tasks for its trainers, by `rollbox_integrations.trl.RollboxHarborSpec`, over the adapter of Harbor."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, Final, cast

from rollbox import SandboxError
from rollbox_integrations import outcome
from rollbox_integrations.versions import require

require("trl", "1.16.0", "trl")

from harbor.environments.factory import EnvironmentFactory  # noqa: E402 - not before its version is known
from harbor.models.task.task import Task  # noqa: E402
from harbor.models.trial.config import EnvironmentConfig  # noqa: E402
from harbor.models.trial.paths import TrialPaths  # noqa: E402
from trl.experimental.harbor import HarborBashEnv, HarborEnv, HarborSpec  # noqa: E402

from rollbox_integrations.harbor import RollboxEnvironment, RollboxOptions  # noqa: E402

_logger = getLogger(__name__)
_PATH: Final = f"{RollboxEnvironment.__module__}:{RollboxEnvironment.__name__}"
_TYPE: Final = "rollbox"
# At the end of a process: what is not deleted by then is left to its lease.
_LAST_DELETES_S: Final = 10.0


class SandboxUnavailable(RuntimeError):  # noqa: N818 - as the SDK names them
    """There is no sandbox any more, or the platform does not answer: nothing of the sample's doing."""


class RollboxHarborEnv(HarborEnv):
    """A rollout of a task in a sandbox. For the tools of another harness inherit this class first, then that harness.

    `reset` returns at once: the sandboxes of a batch start beside one another, and the first tool waits for its own.
    All environments of a process are served by one thread.

    Attributes:
        fault: whose fault it was that the sandbox was lost, and whether to mask the sample; None: it was not.
    """

    _loop: asyncio.AbstractEventLoop
    _loop_thread: threading.Thread
    _env: Any
    _paths: Any
    _task: Any

    def __init__(self, environment_type: str = _TYPE, **options: Any) -> None:  # noqa: ANN401 - Harbor's
        """Take the options of Harbor's environment; nothing is created.

        Raises:
            ValueError: another type of environment is asked for.
            pydantic.ValidationError: an option is none.
        """
        if environment_type != _TYPE:
            raise ValueError(f"environment_type {environment_type!r}: this environment is of type {_TYPE!r}")
        RollboxOptions(**options)
        super().__init__(environment_type)
        # TRL gives each environment a thread of its own.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join()
        self._loop.close()
        self._loop, self._loop_thread = _served()
        self._options = options
        self._starting: asyncio.Task[None] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.fault: outcome.Fault | None = None
        _living.add(self)

    def get_reward(self) -> float | None:
        """Return the verifier's reward; None where the sandbox was lost, which TRL's trainers leave out of the loss."""
        try:
            return self.reward
        except SandboxUnavailable:
            return None

    @property
    def reward(self) -> float:
        """See TRL. A rollout that has ended its own sandbox (out of memory, disk full) has 0.

        Raises:
            SandboxUnavailable: the sandbox was lost.
        """
        if self._starting is None:
            return 0.0
        with self._masked():
            self._run(self._ready())  # type: ignore[no-untyped-call]
            try:
                return float(super().reward)
            except Exception as error:
                if not any(outcome.died(one) for one in _faults(error)):
                    raise
                self._reward = 0.0
        return 0.0

    async def _start(self, task_dir: str) -> str:
        await self._stop()
        self.fault = None
        self._task = await asyncio.to_thread(Task, task_dir=Path(task_dir))
        self._folder = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="rollbox-trl-")
        self._paths = TrialPaths(trial_dir=Path(self._folder.name))
        self._env = EnvironmentFactory.create_environment_from_config(
            config=EnvironmentConfig(import_path=_PATH, kwargs=self._options),
            environment_dir=self._task.paths.environment_dir,
            environment_name=self._task.short_name,
            session_id=uuid.uuid4().hex,
            trial_paths=self._paths,
            task_env_config=self._task.config.environment,
        )
        self._starting = asyncio.create_task(self._begun())
        return str(self._task.instruction)

    async def _begun(self) -> None:
        await self._env.start(force_build=False)
        await self._env.run_healthcheck()
        await self._env.exec("mkdir -p /workdir /home/user/input", user="root")
        await self._setup()

    async def _ready(self) -> None:
        if self._starting is None:
            raise RuntimeError("the environment was not reset: it has no task")
        await asyncio.shield(self._starting)

    async def _stop(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        try:
            await super()._stop()
        finally:
            folder, self._folder = self._folder, None
            if folder is not None:
                # Few files; at the end of a process there are no other threads any more.
                folder.cleanup()

    def _exec(self, command: str, timeout: int = 180) -> str:
        with self._masked():
            self._run(self._ready())  # type: ignore[no-untyped-call]
            return str(super()._exec(command, timeout))

    @contextlib.contextmanager
    def _masked(self) -> Iterator[None]:
        """Note whose fault it was, where an error says nothing about the sample, and say so from then on."""
        if self.fault is not None:
            raise SandboxUnavailable(_sentence(self.fault))
        try:
            yield
        except Exception as error:
            lost = _lost(error)
            if lost is None:
                raise
            self.fault = outcome.fault(lost)
            _logger.warning("a sample is masked: %s", _sentence(self.fault))
            raise SandboxUnavailable(_sentence(self.fault)) from error

    def __del__(self) -> None:
        # It is not waited for: the thread that collects may be the one that serves.
        if getattr(self, "_starting", None) is not None:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop)


class RollboxBashEnv(RollboxHarborEnv, HarborBashEnv):
    """TRL's harness with the single tool `bash`."""


class RollboxHarborSpec(HarborSpec):
    """A suite of Harbor's tasks on rollbox sandboxes.

    spec = RollboxHarborSpec("tasks", egress="offline")
    GRPOTrainer(..., train_dataset=spec.train_dataset, environment_factory=spec.environment_factory)
    """

    def __init__(
        self,
        dataset: str,
        *,
        agent: str | type[RollboxHarborEnv] = RollboxBashEnv,
        num_tasks: int | None = None,
        indices: Sequence[int] | None = None,
        include_metadata: bool = True,
        **options: Any,  # noqa: ANN401 - Harbor's
    ) -> None:
        """Read nothing yet.

        Args:
            dataset: see TRL, as for all that is not described here.
            agent: a class of `RollboxHarborEnv`, or where it is.
            num_tasks: the first ones.
            indices: these.
            include_metadata: columns of the tasks' metadata.
            options: of the environments: `egress`, `build_args`, `labels`, ... as the adapter of Harbor takes them.

        Raises:
            TypeError: the agent is no `RollboxHarborEnv`.
            pydantic.ValidationError: an option is none.
        """
        super().__init__(
            dataset,
            agent=agent,
            environment_type=_TYPE,
            num_tasks=num_tasks,
            indices=None if indices is None else list(indices),
            include_metadata=include_metadata,
        )
        if not issubclass(self._env_cls, RollboxHarborEnv):
            raise TypeError(f"{self._env_cls.__name__} is no RollboxHarborEnv: inherit both")
        RollboxOptions(**options)
        self._options = options

    @functools.cached_property
    def environment_factory(self) -> Callable[[], RollboxHarborEnv]:
        """See TRL. It can be pickled."""
        return functools.partial(cast("type[RollboxHarborEnv]", self._env_cls), environment_type=_TYPE, **self._options)

    @property
    def reward_funcs(self) -> None:  # type: ignore[override]
        """None: the environments own their reward (`get_reward`), in `AsyncGRPOTrainer` too."""
        return


_living: weakref.WeakSet[RollboxHarborEnv] = weakref.WeakSet()


@functools.cache
def _served() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """The loop of all environments, on a thread of its own; at the end of the process it deletes their sandboxes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rollbox-trl", daemon=True)
    thread.start()
    atexit.register(_ended, loop)
    return loop, thread


def _ended(loop: asyncio.AbstractEventLoop) -> None:
    async def stopped() -> None:
        await asyncio.gather(*(one._stop() for one in _living), return_exceptions=True)  # noqa: SLF001 - their own

    with contextlib.suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(stopped(), loop).result(_LAST_DELETES_S)


def _lost(error: BaseException) -> SandboxError | None:
    """What says that an error tells nothing about the sample; None where there is no such thing."""
    return next((one for one in _faults(error) if one.mask_sample), None)


def _faults(error: BaseException | None) -> Iterator[SandboxError]:
    """The SDK's errors that an error has come from."""
    while error is not None:
        if isinstance(error, SandboxError):
            yield error
        error = error.__cause__ or error.__context__


def _sentence(fault: outcome.Fault) -> str:
    return f"{fault['code']} ({fault['fault']}; mask the sample): {fault['why']}"
