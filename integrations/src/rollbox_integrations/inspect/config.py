"""What a sample's sandbox is made of, in rollbox's own words. Pure."""

from __future__ import annotations

from typing import Literal, cast

from pydantic import BaseModel, ConfigDict

from rollbox import EgressPolicy
from rollbox.options import CreateOptions

# What inspect's Docker provider runs where a task says nothing, without a network.
GENERIC_IMAGE = "aisiuk/inspect-tool-support"
OFFLINE = "offline"
# A sample may take that long: its program's lease ends what is left behind much earlier.
TTL_S = 24 * 3600.0


class Build(BaseModel):
    """A Dockerfile that the platform builds; of the same content once."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: str
    file: str


class RollboxConfig(BaseModel):
    """The sandbox of a sample: options of `rollbox.Sandbox.create`, by their names there.

        sandbox=SandboxEnvironmentSpec("rollbox", RollboxConfig(image="python:3.12", memory="2Gi", user="1000"))

    Attributes:
        build: in place of an image: a Dockerfile.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    image: str | None = None
    build: Build | None = None
    checkpoint: str | None = None
    cpu: float | str | tuple[float | str, float | str] | None = None
    memory: int | str | tuple[int | str, int | str] | None = None
    pids: int | None = None
    disk: int | str | None = None
    gpu: int = 0
    pull: Literal["auto", "full", "lazy"] = "auto"
    network: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    labels: dict[str, str] = {}
    egress: str | EgressPolicy | None = None
    ttl: float = TTL_S
    idle_timeout: float | None = None
    start_timeout: float = 600.0

    def __hash__(self) -> int:
        """Of its content: inspect keeps the configurations of a task in a set."""
        return hash(self.model_dump_json())

    def options(self) -> CreateOptions:
        """What of it `Sandbox.create` takes beside the image; what is not given is left to the installation.

        The working directory is not among them: it is made where the image lacks it.
        """
        given = {name: getattr(self, name) for name in type(self).model_fields.keys() - {"image", "build", "cwd"}}
        return cast("CreateOptions", {name: value for name, value in given.items() if value not in (None, {})})
