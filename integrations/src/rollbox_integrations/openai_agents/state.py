"""What a session's sandbox is made of, and what openai-agents keeps of a session to take it up again."""

from __future__ import annotations

from typing import Literal, cast

from agents.sandbox.session import BaseSandboxClientOptions, SandboxSessionState
from pydantic import ConfigDict, Field

from rollbox import EgressPolicy
from rollbox.options import CreateOptions

_OURS = {"type", "image", "exposed_ports"}


class RollboxSandboxClientOptions(BaseSandboxClientOptions):
    """The sandbox of a session: options of `rollbox.Sandbox.create`, by their names there.

    Attributes:
        exposed_ports: those that `resolve_exposed_port` may be asked for. One that was asked for is public.
    """

    model_config = ConfigDict(extra="forbid")
    type: Literal["rollbox"] = "rollbox"
    image: str
    cpu: float | str | None = None
    memory: int | str | None = None
    disk: int | str | None = None
    pids: int | None = None
    gpu: int = 0
    pull: Literal["auto", "full", "lazy"] = "auto"
    network: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    egress: str | EgressPolicy | None = None
    ttl: float = 24 * 3600.0
    idle_timeout: float | None = None
    start_timeout: float = 600.0
    exposed_ports: tuple[int, ...] = ()

    def of_create(self) -> CreateOptions:
        """What of it `Sandbox.create` takes beside the image; what is not given is left to the installation."""
        given = {name: getattr(self, name) for name in type(self).model_fields.keys() - _OURS}
        given["labels"] = {**self.labels, "rollbox.host": "openai-agents"}
        return cast("CreateOptions", {name: value for name, value in given.items() if value not in (None, {})})


class RollboxSandboxSessionState(SandboxSessionState):
    """A session, as it is written down.

    Attributes:
        sandbox_id: of its sandbox.
        options: from which another one is made where that has ended.
    """

    type: Literal["rollbox"] = "rollbox"
    sandbox_id: str
    options: RollboxSandboxClientOptions
