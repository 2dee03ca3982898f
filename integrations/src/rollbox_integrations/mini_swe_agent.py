"""mini-swe-agent: an environment, by its dotted path `rollbox_integrations.mini_swe_agent.RollboxEnvironment`."""

from __future__ import annotations

import contextlib
import os
import platform
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict

import rollbox.sync
from rollbox import SandboxError
from rollbox.options import CreateOptions
from rollbox_integrations import outcome
from rollbox_integrations.versions import require

require("mini-swe-agent", "2.4.0", "mini-swe-agent")

from minisweagent.exceptions import Submitted  # noqa: E402 - not before its version is known
from minisweagent.utils.serialize import recursive_merge  # noqa: E402

_SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# What an exec may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# What mini-swe-agent's own environments return where a command has no code.
_NO_CODE = -1


class SandboxUnavailable(RuntimeError):  # noqa: N818 - the trajectory's exit_status
    """There is no sandbox any more, or the platform does not answer: nothing of the sample's doing."""


class RollboxEnvironmentConfig(BaseModel):
    """What the configuration's `environment` may say: names of mini-swe-agent's Docker, and of `Sandbox.create`."""

    model_config = ConfigDict(extra="forbid")
    image: str
    cwd: str = "/"
    env: dict[str, str] = {}
    forward_env: list[str] = []
    timeout: int = 30
    """Seconds that a command may take."""
    interpreter: list[str] = ["bash", "-lc"]
    user: str | None = None
    cpu: float | str | None = None
    memory: int | str | None = None
    disk: int | str | None = None
    egress: str | None = None
    pull: Literal["auto", "full", "lazy"] = "auto"
    labels: dict[str, str] = {}
    ttl: float = 24 * 3600.0
    start_timeout: float = 600.0


class RollboxEnvironment:
    """A sandbox of an agent, deleted with it.

    Attributes:
        config: what it is made of.
        sandbox: the SDK's own, for what mini-swe-agent has no call for.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - the rest of the configuration
        """Create the sandbox.

        Raises:
            SandboxUnavailable: there is none, and that says nothing about the sample.
            ValueError: the configuration is wrong.
        """
        self.config = RollboxEnvironmentConfig(**kwargs)
        self._fault: outcome.Fault | None = None
        self._dead: SandboxError | None = None
        self.sandbox: rollbox.sync.Sandbox | None = None
        given = self.config.model_dump(include={*CreateOptions.__annotations__, "cpu", "memory", "disk", "pull"})
        given["env"] = {**_forwarded(self.config.forward_env), **self.config.env}
        given["labels"] = {**self.config.labels, "rollbox.host": "mini-swe-agent"}
        options = cast("CreateOptions", {name: value for name, value in given.items() if value is not None})
        try:
            self.sandbox = rollbox.sync.Sandbox.create(self.config.image, **options)
        except SandboxError as error:
            raise self._told(error) from error

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run the command of an action. See mini-swe-agent.

        Raises:
            Submitted: it says that the task is done.
            SandboxUnavailable: there is no sandbox any more, or the platform does not answer.
        """
        if self.sandbox is None or self._dead is not None:
            told = self._told(self._dead) if self._dead is not None else SandboxUnavailable("it is cleaned up")
            raise told from self._dead
        seconds = timeout or self.config.timeout
        try:
            result = self.sandbox.exec(
                [*self.config.interpreter, action.get("command", "")],
                cwd=cwd or self.config.cwd,
                timeout=seconds,
                merge=True,
                max_output_bytes=_MOST_OUTPUT_BYTES,
            )
            if result.timed_out:
                return _late(result.stdout, seconds)
            ended = outcome.ended(result)
        except SandboxError as error:
            ended = self._failed(error)
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace")
        _check_submitted(said, ended.status)
        return {"output": said, "returncode": ended.status, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - mini-swe-agent's
        """See mini-swe-agent."""
        return cast("dict[str, Any]", recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs))

    def serialize(self) -> dict[str, Any]:
        """See mini-swe-agent: what a trajectory has of it; `sandbox_fault` says whether to mask the sample."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config, "sandbox_fault": self._fault}}

    def cleanup(self) -> None:
        """Delete the sandbox; its lease ends one that could not be deleted."""
        if (sandbox := getattr(self, "sandbox", None)) is not None:
            self.sandbox = None
            with contextlib.suppress(SandboxError):
                sandbox.delete()

    def __del__(self) -> None:
        """As mini-swe-agent's own environments do."""
        self.cleanup()

    def _failed(self, error: SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise self._told(error) from error

    def _told(self, error: SandboxError) -> RuntimeError | ValueError:
        self._fault = outcome.fault(error)
        wrong = error.fault == "caller" and not error.mask_sample
        return (ValueError if wrong else SandboxUnavailable)(outcome.sentence(error))


def _forwarded(names: list[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _late(output: str, seconds: int) -> dict[str, Any]:
    why = f"Command timed out after {seconds} seconds"
    extra = {"exception_type": "TimeoutExpired", "exception": why}
    told = f"An error occurred while executing the command: {why}"
    return {"output": output, "returncode": _NO_CODE, "exception_info": told, "extra": extra}


def _check_submitted(output: str, status: int) -> None:
    lines = output.lstrip().splitlines(keepends=True)
    if status == 0 and lines and lines[0].strip() == _SUBMITS:
        submission = "".join(lines[1:])
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
