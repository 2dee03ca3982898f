"""A run: what its calls have done, told while it goes on and at its end.

async with Run("r1", save_to="build/r1") as run:
    async with Batch(samples, rollout, in_flight=256) as batch: ...
        log(run.numbers())
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rollbox import shared
from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument
from rollbox.gateway import Gateway
from rollbox.landing import told
from rollbox.recording import current
from rollbox.recording.recorder import Recorder
from rollbox.report.run_report import RunReport
from rollbox.request import untilded
from rollbox.shared import GatewayOwner
from rollbox.timeline import Timeline

_MOST_NAME = 256
# For the timelines of the slowest creates, all together: a report does not hold up the end of a program.
_TIMELINES_S = 10.0
_log = logging.getLogger("rollbox")


class Run:
    """Counts what is created and run within its `async with`, by this task and all that it starts; by any client.

    A run within a run counts what is within it, and the one around it counts that too, each once. Creates get the label
    `rollbox.run` with the name of the innermost one, so that `rollbox why --run NAME` and `Sandbox.list` find them.
    At the end it prints its report and saves it. It keeps some hundred kilobytes, whatever the number of calls, and
    adds no request until it ends.

    Attributes:
        name: of the run.
    """

    def __init__(
        self,
        name: str,
        *,
        save_to: str | os.PathLike[str] | None = None,
        show: bool = True,
        client: GatewayOwner | None = None,
    ) -> None:
        """Check the arguments; the time of the run begins with the `async with`.

        Args:
            name: 1 to 256 printable characters. A trainer that is restarted keeps it, with that of its groups and keys:
                the platform compares labels too when a key comes again.
            save_to: a folder in which the report is saved at the end, as report.json, report.txt and report.html; it is
                made at the beginning. None: nothing is written.
            show: print the report on stderr at the end.
            client: whom to ask for the timelines of the slowest creates; None is the shared one.

        Raises:
            InvalidArgument: the name is none.
        """
        if not isinstance(name, str) or not 1 <= len(name) <= _MOST_NAME or not name.isprintable():
            raise InvalidArgument(f"the name of a run {name!r} is not 1 to {_MOST_NAME} printable characters")
        self.name = name
        self._save_to = None if save_to is None else Path(untilded("save_to", os.fspath(save_to)))
        self._show = show
        self._client = client
        self._recorder: Recorder | None = None
        self._before: Recorder | None = None
        self._final: RunReport | None = None

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if not isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            await self.report()
        self._tell()

    def begin(self, *, all_threads: bool = False) -> None:
        """Begin the run; `async with` does so.

        Args:
            all_threads: count also what other threads call; as `rollbox.sync.Run` does.

        Raises:
            InvalidArgument: it has begun before, or `save_to` cannot be made.
        """
        if self._recorder is not None:
            raise InvalidArgument(f"the run {self.name!r} has begun before", hint="Make another Run, of the same name.")
        if self._save_to is not None:
            with told(self._save_to):
                self._save_to.mkdir(parents=True, exist_ok=True)
        self._before = current.innermost()
        self._recorder = Recorder(self.name, outer=self._before)
        current.enter(self._recorder, all_threads=all_threads)

    def end(self) -> None:
        """End the run, without its report; `async with` does so."""
        recorder = self._begun()
        recorder.end()
        current.leave(recorder, self._before)

    async def report(self) -> RunReport:
        """Return the report so far, with the platform's timelines of the slowest creates; after the end, the final one.

        Cost: up to ten requests, and 10 s at most. What the platform does not answer is named in `missing`, not raised.
        """
        if self._final is not None:
            return self._final
        recorder = self._begun()
        found = RunReport.of(recorder)
        ids = [one.sandbox_id for one in found.slowest if one.sandbox_id]
        timelines, missing = await self._timelines(ids)
        found = found.with_timelines(timelines, missing)
        if recorder.ended:
            self._final = found
        return found

    def numbers(self) -> dict[str, float]:
        """Return what has happened so far as plain numbers, for any logger: `wandb.log(run.numbers())`. No request."""
        return (self._final or RunReport.of(self._begun())).numbers()

    def _begun(self) -> Recorder:
        if self._recorder is None:
            raise InvalidArgument("a run is used within its `async with`, or after it")
        return self._recorder

    async def _timelines(self, ids: list[str]) -> tuple[dict[str, Timeline], str]:
        if not ids:
            return {}, ""
        try:
            gateway = await shared.gateway_of(self._client)
        except SandboxError as error:
            return {}, str(error)
        try:
            return await _timelines(gateway, ids)
        finally:
            if self._client is None:
                await shared.release(gateway)

    def _tell(self) -> None:
        """Print and save the report. A run that has ended is not failed by a full disk: that is logged."""
        report = self._final or RunReport.of(self._begun())
        if self._show:
            sys.stderr.write(report.text())
        if self._save_to is None:
            return
        try:
            save(report, self._save_to)
        except OSError as error:
            _log.warning("the report of run %s was not saved: %s", self.name, error)

    def __repr__(self) -> str:
        return f"Run(name={self.name!r})"


def save(report: RunReport, folder: Path) -> None:
    """Write report.json, report.txt and report.html into a folder.

    Raises:
        OSError: one cannot be written.
    """
    contents = {"json": json.dumps(report.to_json(), indent=1) + "\n", "txt": report.text(), "html": report.html()}
    for kind, content in contents.items():
        (folder / f"report.{kind}").write_text(content, encoding="utf-8")


async def _timelines(gateway: Gateway, ids: list[str]) -> tuple[dict[str, Timeline], str]:
    found: dict[str, Timeline] = {}
    missing = ""
    try:
        async with asyncio.timeout(_TIMELINES_S):
            for sandbox_id in ids:
                try:
                    body = await gateway.call_api("GET", "sandboxes", sandbox_id, "timeline")
                    found[sandbox_id] = Timeline.from_json(body)
                except SandboxError as error:
                    missing = f"{error.code}: {error.detail}"
    except TimeoutError:
        missing = f"the platform did not answer within {_TIMELINES_S:.0f} s"
    return found, missing
