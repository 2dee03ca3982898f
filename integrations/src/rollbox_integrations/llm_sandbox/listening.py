"""The output of a command while it comes."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from llm_sandbox.data import StreamCallback

from rollbox import ExecResult
from rollbox.request import SpawnOptions
from rollbox.sync import Sandbox


def run(
    sandbox: Sandbox,
    command: str,
    options: SpawnOptions,
    listeners: tuple[StreamCallback | None, StreamCallback | None],
    *,
    errors: str,
    most_bytes: int,
) -> ExecResult:
    """Run a command line, and tell its output as it comes; an error of who listens kills it.

    Args:
        sandbox: where.
        command: for its shell.
        options: of `Sandbox.spawn`.
        listeners: to stdout, in this thread, and to stderr, in another.
        errors: how what is no UTF-8 is told, as of `bytes.decode`.
        most_bytes: of each output, whose end is in the result.
    """
    # The process is closed first, since reading goes on as long as it runs.
    with ThreadPoolExecutor(1) as pool, sandbox.spawn(command, **options) as process:
        second = pool.submit(_heard, process.stderr, listeners[1], errors, most_bytes)
        stdout = _heard(process.stdout, listeners[0], errors, most_bytes)
        stderr = second.result()
        result = process.wait()
        return replace(
            result,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            stdout_truncated=result.stdout_total_bytes > len(stdout),
            stderr_truncated=result.stderr_total_bytes > len(stderr),
        )


def _heard(stream: Iterable[bytes], listener: StreamCallback | None, errors: str, most_bytes: int) -> bytes:
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    kept = bytearray()
    for data in stream:
        kept += data
        if len(kept) > 2 * most_bytes:
            del kept[:-most_bytes]
        if listener is not None and (text := decoder.decode(data)):
            listener(text)
    if listener is not None and (text := decoder.decode(b"", final=True)):
        listener(text)
    return bytes(kept[-most_bytes:])
