"""open-instruct's sandbox environment on rollbox, which ends an episode that has lost its sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from open_instruct import environments
from open_instruct.environments import backends, generic_sandbox
from open_instruct.environments.backends import SandboxBackend
from open_instruct.environments.base import EnvCall, RLEnvironment, StepResult
from open_instruct.environments.generic_sandbox import GenericSandboxEnv, GenericSandboxEnvConfig

from rollbox_integrations import outcome
from rollbox_integrations.open_instruct.backend import RollboxBackend, SandboxLostError

_theirs = backends.create_backend


def create_backend(backend_type: str, **kwargs: Any) -> SandboxBackend:  # noqa: ANN401 - open-instruct's
    """Make a backend that is not started: as open-instruct's own, which is a closed list, and "rollbox"."""
    return RollboxBackend(**kwargs) if backend_type == "rollbox" else _theirs(backend_type, **kwargs)


# Ray's workers import this module with the environment that they run.
for _module in (backends, generic_sandbox, environments):
    vars(_module)["create_backend"] = create_backend


class RollboxSandboxEnv(GenericSandboxEnv):
    """`execute_bash` and `str_replace_editor` in a sandbox of rollbox, one for each episode.

    open-instruct makes a reward of 0 of whatever a step raises, and goes on. Here an episode that has lost its sandbox
    is over, and its metrics say whose fault that was.
    """

    config_name = "rollbox_sandbox"

    def __init__(self, backend: str = "rollbox", **kwargs: Any) -> None:  # noqa: ANN401 - open-instruct's
        """See open-instruct."""
        super().__init__(backend=backend, **kwargs)
        self.fault: outcome.Fault | None = None

    async def reset(self, **kwargs: Any) -> tuple[StepResult, list[dict[str, Any]]]:  # noqa: ANN401
        """Create the sandbox of an episode; open-instruct tries three times.

        Raises:
            RuntimeError: there is none; its cause says whose fault that was.
        """
        self.fault = None
        return await super().reset(**kwargs)

    async def step(self, call: EnvCall) -> StepResult:
        """Call a tool. See open-instruct."""
        try:
            return await super().step(call)
        except SandboxLostError as lost:
            self.fault = lost.fault
            said = f"The sandbox is lost: {lost}"
            return StepResult(result=said, done=True, metadata={"error": said, "sandbox_fault": dict(lost.fault)})

    def get_metrics(self) -> dict[str, float]:
        """As open-instruct's; `sandbox_masked` is 1 where the episode says nothing about the sample."""
        masked = self.fault is not None and self.fault["mask_sample"]
        return {**super().get_metrics(), "sandbox_lost": float(self.fault is not None), "sandbox_masked": float(masked)}


@dataclass
class RollboxSandboxEnvConfig(GenericSandboxEnvConfig):
    """What `--tool_configs` may say of the tool `rollbox_sandbox`."""

    tool_class: ClassVar[type[RLEnvironment]] = RollboxSandboxEnv
    backend: str = "rollbox"
    options: dict[str, Any] = field(default_factory=dict)
    """Of `rollbox.Sandbox.create`."""


def register() -> None:
    """Put the tool `rollbox_sandbox` into the table of open-instruct's trainers."""
    from open_instruct.environments.tools.tools import TOOL_REGISTRY  # noqa: PLC0415 - a trainer's, with all it needs

    TOOL_REGISTRY[RollboxSandboxEnv.config_name] = RollboxSandboxEnvConfig
