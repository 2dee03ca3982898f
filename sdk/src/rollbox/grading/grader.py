"""Grades what a solver has left, in a fresh sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from rollbox._problem import SandboxError
from rollbox.deadline import Stopwatch
from rollbox.errors import (
    Conflict,
    Deleted,
    DiskFull,
    FileNotFound,
    OomKilled,
    SandboxNotFound,
    Unauthenticated,
    Unsupported,
    UpstreamTimeout,
)
from rollbox.files.handle import Files
from rollbox.files.initial import AT_ONCE
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.grading import rewards
from rollbox.grading.handover import FromSolver, Handover
from rollbox.grading.options import Grading
from rollbox.grading.tree import Refused
from rollbox.grading.verdict import GradeFault, GradeReason, Verdict
from rollbox.options import CreateSpec
from rollbox.process.listing import Processes
from rollbox.request import Command
from rollbox.result import ExecResult

# Of the program that grades, and the same for every sample.
_OF_THE_PROGRAM = (SandboxNotFound, Unauthenticated, Unsupported)
# Of sandboxes; those after which a new one helps say so themselves.
_ENDS = (Deleted, DiskFull, OomKilled)


class GraderSandbox(Protocol):
    """What a grader needs of its `Sandbox`."""

    _access: SandboxAccess

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def files(self) -> Files:
        """Its files."""
        ...

    async def exec(self, cmd: Command, *, timeout: float, max_output_bytes: int | None) -> ExecResult:  # noqa: ASYNC109
        """Run a command."""
        ...

    async def delete(self) -> None:
        """Delete it."""
        ...


class _Failed(Exception):  # noqa: N818 - carries a fault to its verdict
    def __init__(self, fault: GradeFault, reason: GradeReason, detail: str, error: SandboxError | None = None) -> None:
        super().__init__(detail)
        self.fault, self.reason, self.detail, self.error = fault, reason, detail, error


class Grader:
    """One grading.

    Args:
        gateway, solver: what is graded.
        grading: how.
        create: makes a sandbox.
        delete: deletes the solver.
    """

    def __init__(
        self,
        gateway: Gateway,
        solver: SandboxAccess,
        grading: Grading,
        create: Callable[[CreateSpec], Awaitable[GraderSandbox]],
        delete: Callable[[], Awaitable[None]],
    ) -> None:
        self._gateway, self._solver, self._grading = gateway, solver, grading
        self._create, self._delete = create, delete
        self._verdict = Verdict()

    async def verdict(self) -> Verdict:
        """Grade; a fault of any side is a verdict too, a mistake of this program (no such image) is raised."""
        watch, verdict = Stopwatch(), self._verdict
        try:
            async with self._grader() as grader:
                verdict.grader_id = grader.id
                await self._in_time(grader)
                if not self._grading.keep:
                    await self._delete()
                verdict.times.before_run_ms = _ms(watch)
                await self._run(grader)
        except _Failed as failed:
            verdict.fault, verdict.reason, verdict.detail = failed.fault, failed.reason, failed.detail
            verdict.error = failed.error
            verdict.reward = 0.0 if failed.fault == "sample" else None
            if not self._grading.keep:
                await self._delete()
        verdict.times.total_ms = _ms(watch)
        return verdict

    @asynccontextmanager
    async def _grader(self) -> AsyncIterator[GraderSandbox]:
        """Create the grader while the solver is stopped; delete it in any case."""
        creating = asyncio.ensure_future(self._created())
        try:
            await self._stopped()
            grader = await creating
            yield grader
        finally:
            # A create that is cancelled deletes what it may have created.
            creating.cancel()
            await asyncio.wait([creating])
            if not creating.cancelled() and creating.exception() is None:
                # It logs what it fails with; a grader that stays ends with its lease, or its ttl.
                with suppress(SandboxError, TimeoutError):
                    await self._gateway.run_cleanup(creating.result().delete())

    async def _created(self) -> GraderSandbox:
        watch = Stopwatch()
        try:
            return await self._create(self._grading.spec(self._solver.sandbox_id))
        except SandboxError as error:
            if error.fault == "caller":
                raise
            raise _Failed("platform", "failed", f"the grader did not start: {error.detail}", error) from error
        finally:
            self._verdict.times.create_ms = _ms(watch)

    async def _stopped(self) -> None:
        watch = Stopwatch()
        try:
            await Processes(self._gateway, self._solver).kill_all(timeout=self._grading.handover_timeout)
        except Conflict as error:
            raise _Failed("sample", "not_stopped", error.detail, error) from error
        except SandboxError as error:
            raise of_solver(error) from error
        finally:
            self._verdict.times.stop_ms = _ms(watch)

    async def _in_time(self, grader: GraderSandbox) -> None:
        try:
            async with asyncio.timeout(self._grading.handover_timeout) as limit:
                await self._prepared(grader)
        except TimeoutError as error:
            if not limit.expired():
                raise
            within = f"{self._grading.handover_timeout:g} s"
            detail = f"what the solver left was not handed over within {within}, handover_timeout"
            raise _Failed("platform", "failed", detail, UpstreamTimeout(detail)) from error

    async def _prepared(self, grader: GraderSandbox) -> None:
        watch, grading = Stopwatch(), self._grading
        times, to = self._verdict.times, grader._access  # noqa: SLF001 - its own
        try:
            await Handover(self._gateway, self._solver, to, grading, self._verdict.taken).take()
            times.take_ms, watch = _ms(watch), Stopwatch()
            await self._own_files(grader)
        except Refused as refused:
            raise _Failed("sample", refused.reason, str(refused)) from refused
        except FromSolver as failed:
            raise of_solver(failed.error) from failed
        except SandboxError as error:
            raise of_grader(error, "not_prepared") from error
        times.files_ms = _ms(watch)

    async def _own_files(self, grader: GraderSandbox) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def write(path: str, content: bytes | Path) -> None:
            async with slots:
                if isinstance(content, bytes):
                    await grader.files.write(path, content)
                elif content.is_dir():  # noqa: ASYNC240 - one look, as the options have taken
                    await grader.files.upload_dir(content, path)
                else:
                    await grader.files.upload(content, path)

        folders = {path.rpartition("/")[0] for path in self._grading.rewards()}
        try:
            async with asyncio.TaskGroup() as writes:
                for folder in folders:
                    writes.create_task(grader.files.mkdir(folder))
                for path, content in self._grading.contents().items():
                    writes.create_task(write(path, content))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _run(self, grader: GraderSandbox) -> None:
        watch, grading, verdict = Stopwatch(), self._grading, self._verdict
        try:
            result = await grader.exec(grading.run, timeout=grading.timeout, max_output_bytes=grading.max_output_bytes)
        except SandboxError as error:
            raise of_grader(error, "not_run") from error
        finally:
            verdict.times.run_ms = _ms(watch)
        verdict.result = result
        if result.end == "deadline":
            raise _Failed("grader", "timeout", f"the tests did not end within {grading.timeout:g} s")
        if result.end == "oom_killed":
            raise _Failed("grader", "oom", "the tests exceeded the memory of the grader")
        if result.end == "cancelled":
            raise _Failed("platform", "failed", "the tests were cancelled")
        verdict.rewards = await self._rewards(grader)
        verdict.reward = rewards.chosen(verdict.rewards) if grading.rewards() else float(result.ok)

    async def _rewards(self, grader: GraderSandbox) -> dict[str, float]:
        wanted = self._grading.rewards()
        try:
            for path in wanted:
                try:
                    data = await grader.files.read(path, length=rewards.MOST_BYTES + 1)
                except FileNotFound:
                    continue
                return rewards.parsed(path, data)
        except rewards.Malformed as error:
            raise _Failed("grader", "reward_malformed", str(error)) from error
        except SandboxError as error:
            raise of_grader(error, "reward_malformed") from error
        if wanted:
            raise _Failed("grader", "reward_missing", f"the tests left none of {', '.join(wanted)}")
        return {}


def of_solver(error: SandboxError) -> Exception:
    """The fault behind an error of the solver's sandbox; the error itself where it is one of the program."""
    if isinstance(error, _OF_THE_PROGRAM):
        return error
    fault: GradeFault = "platform" if error.mask_sample else "sample"
    if error.details.get("reason") == "user_not_found":
        return _Failed("grader", "not_prepared", error.detail, error)
    if error.retry == "new_sandbox" or isinstance(error, _ENDS):
        detail = f"the solver's sandbox has ended, and its files with it: {error.detail}"
        return _Failed(fault, "solver_ended", detail, error)
    return _Failed(fault, "failed" if error.mask_sample else "unreadable", error.detail, error)


def of_grader(error: SandboxError, reason: GradeReason) -> _Failed:
    """The fault behind an error of the grader's sandbox."""
    if error.is_infra:
        return _Failed("platform", "failed", error.detail, error)
    return _Failed("grader", "oom" if error.code == "oom_killed" else reason, error.detail, error)


def _ms(watch: Stopwatch) -> float:
    return round(watch.passed_s() * 1000, 3)
