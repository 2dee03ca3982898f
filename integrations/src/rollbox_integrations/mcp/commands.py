"""The tools that run commands and processes. Their docstrings are what a model is told of them."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from rollbox import ExecResult, ExecSummary, Sandbox
from rollbox.errors import ExecNotFound
from rollbox_integrations.mcp.excerpts import before, excerpt
from rollbox_integrations.mcp.inputs import OneSandbox, ReadOutput, RunCommand, StartProcess, StopProcess
from rollbox_integrations.mcp.outputs import (
    CommandOutput,
    PieceOutput,
    ProcessesOutput,
    ProcessOutput,
    StoppedOutput,
)
from rollbox_integrations.mcp.sandboxes import Sandboxes

# What the sandbox keeps of each output, for `read_output`; the last bytes.
_KEPT_BYTES: Final = 4 * 2**20
_MOST_LISTED: Final = 50
_MOST_NAME: Final = 200
# What is on record comes at once; a gateway that restarts takes some seconds.
_COMES_S: Final = 30.0
_LOOK_AHEAD: Final = 4


async def run_command(sandboxes: Sandboxes, given: RunCommand) -> CommandOutput:
    """Run a shell command to its end. A non-zero exit code is a result. What still runs after it: start_process."""
    output_id = uuid4().hex
    result = await sandboxes.get(given.sandbox_id).sandbox.exec(
        given.command,
        cwd=given.cwd or None,
        env=given.env,
        user=given.user or None,
        stdin=given.stdin.encode(),
        timeout=given.timeout,
        max_output_bytes=_KEPT_BYTES,
        exec_id=output_id,
    )
    return _told(result, given.max_output_bytes, output_id)


async def start_process(sandboxes: Sandboxes, given: StartProcess) -> ProcessOutput:
    """Start a shell command in the background, like a server; read_output reads what it writes."""
    process = await sandboxes.get(given.sandbox_id).sandbox.spawn(
        given.command,
        cwd=given.cwd or None,
        env=given.env,
        user=given.user or None,
        stdin=given.stdin.encode() or False,
        max_output_bytes=_KEPT_BYTES,
        output_waits=False,
    )
    await process.aclose()
    return ProcessOutput(
        process_id=process.exec_id,
        pid=process.pid or 0,
        command=given.command[:_MOST_NAME],
        running=True,
        end=None,
        exit_code=None,
        stdout_bytes=0,
        stderr_bytes=0,
    )


async def list_processes(sandboxes: Sandboxes, given: OneSandbox) -> ProcessesOutput:
    """List the commands and processes of a sandbox: those that run, and those that ended a while ago."""
    found = await sandboxes.get(given.sandbox_id).sandbox.processes.list()
    return ProcessesOutput(
        processes=[_listed(one) for one in found[:_MOST_LISTED]], truncated=len(found) > _MOST_LISTED
    )


async def stop_process(sandboxes: Sandboxes, given: StopProcess) -> StoppedOutput:
    """Kill a process with all that it has started."""
    process = await sandboxes.get(given.sandbox_id).sandbox.processes.attach(given.process_id)
    try:
        await process.kill()
    finally:
        await process.aclose()
    return StoppedOutput(process_id=given.process_id)


async def read_output(sandboxes: Sandboxes, given: ReadOutput) -> PieceOutput:
    """Read what a command, a process or a cell has written, from a byte on; next_offset continues there."""
    held = sandboxes.get(given.sandbox_id)
    if (cell := held.cell(given.output_id)) is not None:
        data, total = (cell.stdout_bytes, cell.stdout_total_bytes)
        if given.stream == "stderr":
            data, total = (cell.stderr_bytes, cell.stderr_total_bytes)
        return _piece(data[given.offset :], given.offset, given.max_bytes, total)
    summary = await _summary(held.sandbox, given.output_id)
    data, offset = await _read(held.sandbox, given, summary)
    if given.wait and summary.running:
        summary = await _summary(held.sandbox, given.output_id)
    piece = _piece(data, offset, given.max_bytes, max(_written(summary, given.stream), offset + len(data)))
    return piece.model_copy(update={"running": summary.running, "end": summary.end, "exit_code": summary.exit_code})


async def _summary(sandbox: Sandbox, exec_id: str) -> ExecSummary:
    for one in await sandbox.processes.list():
        if one.exec_id == exec_id:
            return one
    raise ExecNotFound(f"sandbox {sandbox.id} has no output {exec_id!r} any more", sandbox_id=sandbox.id)


async def _read(sandbox: Sandbox, given: ReadOutput, summary: ExecSummary) -> tuple[bytes, int]:
    """Read what is there, else wait for some; returns it with its offset, which is later where some was dropped."""
    there = _written(summary, given.stream) - given.offset
    if there <= 0 and not (summary.running and given.wait):
        return b"", given.offset
    offsets = {f"{given.stream}_offset": given.offset}
    process = await sandbox.processes.attach(given.output_id, **offsets)
    stream = process.stdout if given.stream == "stdout" else process.stderr
    data = b""
    try:
        # A few bytes more, to see where a character ends.
        wanted = min(max(there, 1), given.max_bytes + _LOOK_AHEAD)
        while len(data) < wanted:
            more = await stream.next_bytes(timeout=_COMES_S if there > 0 else given.wait)
            data += more
            if not more or stream.gaps:
                break
    except TimeoutError:
        pass
    finally:
        await process.aclose()
    return data, stream.offset - len(data)


def _piece(data: bytes, offset: int, most: int, total: int) -> PieceOutput:
    cut = data if len(data) <= most else data[: before(data, most)]
    return PieceOutput(
        text=cut.decode("utf-8", "replace"),
        offset=offset,
        next_offset=offset + len(cut),
        total_bytes=total,
        running=False,
        end=None,
        exit_code=None,
    )


def _told(result: ExecResult, most: int, output_id: str) -> CommandOutput:
    hint = f"read_output with output_id {output_id}"
    shown = {}
    for name, data, total in (
        ("stdout", result.stdout_bytes, result.stdout_total_bytes),
        ("stderr", result.stderr_bytes, result.stderr_total_bytes),
    ):
        shown[name] = excerpt(data, total, most, start=total - len(data), hint=f"{hint} and stream {name}")
    return CommandOutput(
        end=result.end,
        exit_code=result.exit_code,
        signal=result.signal,
        stdout=shown["stdout"],
        stderr=shown["stderr"],
        stdout_truncated=result.stdout_total_bytes > most,
        stderr_truncated=result.stderr_total_bytes > most,
        stdout_bytes=result.stdout_total_bytes,
        stderr_bytes=result.stderr_total_bytes,
        run_ms=result.run_ms,
        output_id=output_id,
    )


def _written(summary: ExecSummary, stream: str) -> int:
    return summary.stdout_bytes if stream == "stdout" else summary.stderr_bytes


def _listed(one: ExecSummary) -> ProcessOutput:
    return ProcessOutput(
        process_id=one.exec_id,
        pid=one.pid,
        command=" ".join(one.argv)[:_MOST_NAME],
        running=one.running,
        end=one.end,
        exit_code=one.exit_code,
        stdout_bytes=one.stdout_bytes,
        stderr_bytes=one.stderr_bytes,
    )
