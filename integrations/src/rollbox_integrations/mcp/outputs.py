"""What each tool returns as structured content. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Output(BaseModel):
    """The structured content of a result."""

    model_config = ConfigDict(extra="forbid")


class FaultOutput(Output):
    """Whose fault a failure was: an `outcome.Fault`."""

    code: str
    fault: str
    mask_sample: bool
    retry: str
    why: str
    sandbox_id: str


class SandboxOutput(Output):
    """A sandbox."""

    sandbox_id: str
    state: str
    image: str
    egress: str
    expires_at: str


class SandboxesOutput(Output):
    """The sandboxes of the server."""

    sandboxes: list[SandboxOutput]
    max_sandboxes: int


class DeletedOutput(Output):
    """What was deleted."""

    sandbox_id: str


class CommandOutput(Output):
    """How a command ended, and what it wrote."""

    end: Literal["exited", "signalled", "deadline", "oom_killed", "cancelled"]
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_bytes: int
    stderr_bytes: int
    run_ms: float
    output_id: str


class ProcessOutput(Output):
    """A process that runs, or has ended."""

    process_id: str
    pid: int
    command: str
    running: bool
    end: str | None
    exit_code: int | None
    stdout_bytes: int
    stderr_bytes: int


class ProcessesOutput(Output):
    """The processes of a sandbox, newest first."""

    processes: list[ProcessOutput]
    truncated: bool


class StoppedOutput(Output):
    """What was stopped."""

    process_id: str


class PieceOutput(Output):
    """A piece of an output."""

    text: str
    offset: int
    next_offset: int
    total_bytes: int
    running: bool
    end: str | None
    exit_code: int | None


class CellErrorOutput(Output):
    """What a cell raised."""

    name: str
    value: str
    traceback: str


class CellOutput(Output):
    """How a cell ended, what it printed and what it shows."""

    end: Literal["finished", "deadline", "interrupted", "died"]
    value: str | None
    error: CellErrorOutput | None
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_bytes: int
    stderr_bytes: int
    displayed: list[str]
    pictures: int
    results_omitted: int
    variables_lost: bool
    restarted: bool
    reason: str
    run_ms: float
    output_id: str


class FileOutput(Output):
    """A piece of a file."""

    path: str
    content: str
    encoding: Literal["utf-8", "base64", "picture"]
    offset: int
    next_offset: int
    size_bytes: int
    truncated: bool


class WrittenOutput(Output):
    """A file that was written."""

    path: str
    size_bytes: int
    sha256: str | None


class EntryOutput(Output):
    """An entry of a directory."""

    path: str
    kind: Literal["file", "directory", "symlink", "other"]
    size_bytes: int
    mode: str
    link_target: str | None


class ListingOutput(Output):
    """The entries of a directory."""

    entries: list[EntryOutput]
    truncated: bool


class AnswerOutput(Output):
    """What a server in a sandbox has answered."""

    status: int
    headers: dict[str, str]
    body: str
    encoding: Literal["utf-8", "base64"]
    truncated: bool


class PortOutput(Output):
    """The address of a port."""

    port: int
    public: bool
    url: str
    host_url: str | None
