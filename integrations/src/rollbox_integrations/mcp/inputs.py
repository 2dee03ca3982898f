"""What each tool takes: the schemas that a client is shown, and that arguments are checked against. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rollbox_integrations.mcp.settings import MOST_TTL_S

MOST_SECONDS: Final = 3600
DEFAULT_SHOWN: Final = 16 * 1024
MOST_SHOWN: Final = 128 * 1024
MOST_TEXT: Final = 2**20
_MOST_COMMAND: Final = 120 * 1024

SandboxId = Annotated[str, Field(min_length=1, max_length=128, description="As create_sandbox returned it.")]
ProcessId = Annotated[str, Field(min_length=1, max_length=128, description="As start_process returned it.")]
Path = Annotated[str, Field(min_length=1, max_length=4096, description="Absolute, or below the working directory.")]
Text = Annotated[str, Field(max_length=MOST_TEXT)]
Variables = Annotated[dict[str, str], Field(max_length=256)]
Shown = Annotated[
    int, Field(ge=256, le=MOST_SHOWN, description="Bytes of each output to return; read_output has the rest.")
]
Timeout = Annotated[float, Field(gt=0, le=MOST_SECONDS, description="Seconds after which it is killed.")]
Directory = Annotated[str, Field(max_length=4096, description="Its directory; empty: the sandbox's.")]
User = Annotated[str, Field(max_length=64, description="Name or number of its user; empty: the sandbox's.")]
Port = Annotated[int, Field(ge=1, le=65_535)]


class Input(BaseModel):
    """The arguments of a tool. One that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class NoArguments(Input):
    """Of a tool that takes none."""


class CreateSandbox(Input):
    """Of `create_sandbox`."""

    image: Annotated[str, Field(max_length=512, description="A container image; empty: the server's default.")] = ""
    egress: Annotated[str, Field(max_length=128, description="What it may reach; empty: the server's default.")] = ""
    cpu: Annotated[float, Field(ge=0.1, le=64, description="Cores at most.")] = 1
    memory_mb: Annotated[int, Field(ge=64, le=262_144, description="MiB at most.")] = 1024
    env: Annotated[Variables, Field(description="Variables of all its commands.")] = {}
    cwd: Directory = ""
    user: User = ""
    ttl: Annotated[int, Field(ge=60, le=MOST_TTL_S, description="Seconds until it ends by itself.")] = 3600
    start_timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS, description="Seconds that its start may take.")] = 300


class OneSandbox(Input):
    """Of tools that need to know only which."""

    sandbox_id: SandboxId


class _Command(OneSandbox):
    command: Annotated[str, Field(min_length=1, max_length=_MOST_COMMAND, description="For bash, or sh.")]
    cwd: Directory = ""
    env: Variables = {}
    user: User = ""
    stdin: Annotated[Text, Field(description="Its input.")] = ""


class RunCommand(_Command):
    """Of `run_command`."""

    timeout: Timeout = 60
    max_output_bytes: Shown = DEFAULT_SHOWN


class StartProcess(_Command):
    """Of `start_process`."""


class StopProcess(OneSandbox):
    """Of `stop_process`."""

    process_id: ProcessId


class ReadOutput(OneSandbox):
    """Of `read_output`."""

    output_id: Annotated[
        str, Field(min_length=1, max_length=128, description="Of run_command or run_code; or a process_id.")
    ]
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Annotated[int, Field(ge=0, description="The first byte to return.")] = 0
    max_bytes: Annotated[int, Field(ge=256, le=MOST_SHOWN)] = DEFAULT_SHOWN
    wait: Annotated[
        float, Field(ge=0, le=MOST_SECONDS, description="Seconds to wait for more of a process that runs.")
    ] = 0


class RunCode(OneSandbox):
    """Of `run_code`."""

    code: Annotated[Text, Field(min_length=1)]
    language: Literal["python", "node"] = "python"
    restart: Annotated[bool, Field(description="Begin anew, without the variables of earlier cells.")] = False
    timeout: Annotated[Timeout, Field(description="Seconds after which it is interrupted; variables stay.")] = 60
    max_output_bytes: Shown = DEFAULT_SHOWN


class ReadFile(OneSandbox):
    """Of `read_file`."""

    path: Path
    offset: Annotated[int, Field(ge=0, description="The first byte to return.")] = 0
    max_bytes: Annotated[int, Field(ge=256, le=MOST_SHOWN)] = 4 * DEFAULT_SHOWN


class WriteFile(OneSandbox):
    """Of `write_file`."""

    path: Path
    content: Text
    encoding: Literal["utf-8", "base64"] = "utf-8"
    mode: Annotated[str, Field(pattern="^([0-7]{3,4})?$", description="Like 755; empty: as it was, or 644.")] = ""


class ListFiles(OneSandbox):
    """Of `list_files`."""

    path: Path = "."
    recursive: bool = False
    limit: Annotated[int, Field(ge=1, le=2000)] = 200


class RequestPort(OneSandbox):
    """Of `request_port`."""

    port: Port
    path: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=8192, description="With its query.")] = "/"
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[dict[str, str], Field(max_length=64)] = {}
    body: Text = ""
    wait: Annotated[float, Field(gt=0, le=300, description="Seconds to wait until something listens.")] = 10
    timeout: Annotated[float, Field(gt=0, le=300, description="Seconds that the answer may take.")] = 30
    max_bytes: Annotated[int, Field(ge=256, le=MOST_SHOWN)] = DEFAULT_SHOWN


class PublishPort(OneSandbox):
    """Of `publish_port`."""

    port: Port
    public: Annotated[bool, Field(description="False makes it private again.")] = True
