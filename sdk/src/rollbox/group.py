"""Sandboxes of one image for the samples of one prompt: created by one call, found again by name, deleted together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack
from uuid import uuid4

from rollbox import request, shared, tracing
from rollbox._problem import SandboxError
from rollbox.deadline import Deadline
from rollbox.errors import InvalidArgument
from rollbox.files import initial
from rollbox.gateway import CALL_ID, Gateway
from rollbox.lazy import LazySandbox
from rollbox.options import CreateOptions, CreateSpec, GroupOptions
from rollbox.record import DeleteReport, SandboxRecord
from rollbox.recording import current
from rollbox.retry import REPEATABLE
from rollbox.sandbox import Sandbox
from rollbox.shared import GatewayOwner
from rollbox.transport import error_from_problem

GROUP_LABEL = "rollbox.group"
"""The label with the name of the group."""

SAMPLE_LABEL = "rollbox.sample"
"""The label with the number of the sample, from 0 on."""

MOST_SAMPLES = 1024
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")

Member = TypeVar("Member", Sandbox, LazySandbox)


class SandboxGroup(Generic[Member]):
    """`n` sandboxes with the same options, numbered from 0: one for each sample.

    Made by `await SandboxGroup.create(...)` (all ready), `SandboxGroup.lazy(...)` (each starts with its first use) or
    `await SandboxGroup.connect(name)`. As an asynchronous context manager it deletes them all in one call at the end,
    unless `detach()` was called.

    Attributes:
        name: unique among the owner's groups; the label `rollbox.group` of its sandboxes.
        failed: by sample, the error why it has no sandbox; only a partial group and `connect` have entries.
    """

    def __init__(
        self,
        name: str,
        members: Mapping[int, Member],
        failed: Mapping[int, SandboxError],
        gateway: Gateway | None,
        *,
        leased: bool,
    ) -> None:
        """Use `create`, `lazy` or `connect` instead."""
        self.name = name
        self.failed = dict(failed)
        self._members: dict[int, Member] = dict(members)
        self._gateway = gateway
        self._leased = leased
        self._detached = False
        self._deleted = False

    @classmethod
    async def create(
        cls,
        image: str | None = None,
        *,
        n: int,
        name: str | None = None,
        partial: bool = False,
        client: GatewayOwner | None = None,
        **options: Unpack[GroupOptions],
    ) -> SandboxGroup[Sandbox]:
        """Create `n` sandboxes in one call and return when all of them are ready, or have failed.

        Args:
            image: as for `Sandbox.create`.
            n: how many, at most 1024.
            name: the same name with the same arguments gives the same sandboxes, also to another process; random
                when None.
            partial: return the sandboxes that could be created, with the errors of the others in `failed`; else the
                first error is raised and all sandboxes are deleted.
            client: as for `Sandbox.create`.
            options: those of `Sandbox.create`, for each.

        Raises:
            SandboxError: as `Sandbox.create`; the first failure where it is not `partial`.
        Cancel safety: a cancelled call deletes the sandboxes that it may have created, but none that another call with
            the same name has (for `files` see `Sandbox.create`: a `name` of yours counts as a key of yours).
        Cost: one request, open until the last one is ready; warm ones are claimed concurrently. One more request for
            each of `files` and each sandbox, 32 at a time.
        """
        spec = CreateSpec.of(image, options)
        contents = initial.checked(spec.files)
        samples = request.count("n", n, most=MOST_SAMPLES)
        made_name = uuid4().hex if name is None else checked_name(name)
        body = {"count": samples, "partial": partial, "sandbox": spec.to_json()}
        deadline = Deadline(spec.start_timeout)

        async def created(gateway: Gateway) -> dict[str, Any]:
            return await _created(gateway, made_name, body, forget=name is None, deadline=deadline)

        made = await _opened(client, made_name, created)
        if contents and (gateway := made._gateway):  # noqa: SLF001 - its own, of another type parameter
            files = initial.InitialFilesWriter(contents, deadline, own_key=name is not None)
            await made._write_initial_files(gateway, files, partial=partial)  # noqa: SLF001
        return made

    @classmethod
    def lazy(
        cls,
        image: str | None = None,
        *,
        n: int,
        name: str | None = None,
        client: GatewayOwner | None = None,
        **options: Unpack[GroupOptions],
    ) -> SandboxGroup[LazySandbox]:
        """Make a group whose sandboxes start one by one, each with its first use; nothing is sent now.

        Args:
            image: name of a container image; None: `checkpoint` is given.
            n: how many sandboxes, 1 to 1024.
            name: of the group, 1 to 100 of A-Za-z0-9._-; None makes one up.
            client: as in `Sandbox.create`.
            **options: as in `Sandbox.create`, for each sandbox.

        Raises:
            InvalidArgument: an argument is invalid.
        """
        made_name = uuid4().hex if name is None else checked_name(name)
        samples = range(request.count("n", n, most=MOST_SAMPLES))
        members = {}
        for sample in samples:
            labels = {**(options.get("labels") or {}), GROUP_LABEL: made_name, SAMPLE_LABEL: str(sample)}
            key = f"{made_name}/{sample}"
            wish: CreateOptions = {**options, "labels": labels, "idempotency_key": key}
            members[sample] = LazySandbox(image, client=client, **wish)
        return SandboxGroup(made_name, members, {}, None, leased=False)

    @classmethod
    async def connect(
        cls, name: str, *, attach: bool = False, client: GatewayOwner | None = None
    ) -> SandboxGroup[Sandbox]:
        """Find the sandboxes of a group again, as after a restart of the trainer; waits for those that still start.

        Ended ones are in `failed`, with the cause. Of a lazy group only samples that have started are found.

        Args:
            name: of the group.
            attach: put the sandboxes on this client's lease, as in `Sandbox.connect`.
            client: as for `Sandbox.create`.

        Raises:
            NotFound: the owner has no group of this name.
        Cost: one request; with `attach` two more for each sandbox.
        """
        checked = checked_name(name)
        return await _opened(client, checked, lambda gateway: gateway.call_api("GET", "groups", checked), attach=attach)

    async def attach(self) -> None:
        """Put the group's sandboxes on this client's lease, instead of that of the client that created them.

        Raises:
            SandboxError: the first failure; the other sandboxes are attached all the same.
        Cost: two requests for each sandbox; none for a lazy group, whose sandboxes have this client's lease anyway.
        """
        failures: list[SandboxError] = []
        async with asyncio.TaskGroup() as attaches:
            for member in self:
                attaches.create_task(_attach_one(member, failures))
        if failures:
            raise failures[0]

    async def _write_initial_files(self, gateway: Gateway, files: initial.InitialFilesWriter, *, partial: bool) -> None:
        """Write the initial files of all sandboxes; a sample whose files cannot be written has failed."""

        async def begun(sample: int, member: Sandbox) -> None:
            try:
                await files.write(member.files)
            except SandboxError as error:
                # As with creates: a group without any sandbox is a failure, not a partial group.
                if not partial or len(self._members) == 1:
                    raise
                del self._members[sample]
                self.failed[sample] = error
                if not files.keeps_sandbox_after(error):
                    await gateway.run_cleanup(member.delete())

        try:
            async with asyncio.TaskGroup() as beginnings:
                for sample, member in [*self.items()]:
                    if isinstance(member, Sandbox):
                        beginnings.create_task(begun(sample, member))
        except BaseException as failures:
            failure = failures.exceptions[0] if isinstance(failures, BaseExceptionGroup) else failures
            if not files.keeps_sandbox_after(failure):
                await gateway.run_cleanup(_delete_once(gateway, self.name))
            await self._release()
            raise failure from None

    def __getitem__(self, sample: int) -> Member:
        """Return the sandbox of a sample; raises the error why it has none."""
        if sample in self.failed:
            raise self.failed[sample]
        if sample not in self._members:
            raise InvalidArgument(f"group {self.name} has no sample {sample!r}")
        return self._members[sample]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the existing sandboxes, in the order of their samples."""
        return iter(self._members.values())

    def __len__(self) -> int:
        """Return how many samples have a sandbox."""
        return len(self._members)

    def items(self) -> Iterator[tuple[int, Member]]:
        """Iterate over sample and sandbox, in order."""
        return iter(self._members.items())

    async def detach(self) -> str:
        """Leave the sandboxes running when the `async with` ends, and after this client; returns the name.

        Cost: a request for each sandbox that has a lease.
        """
        self._detached = True
        await asyncio.gather(*(member.detach() for member in self))
        return self.name

    async def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> DeleteReport:
        """Delete all sandboxes of the group in one call, or those of a lazy group that have started one by one.

        Idempotent; `wait` and `wait_timeout` as in `Sandbox.delete`. Returns what was deleted, and the error of each
        sandbox that was not, or whose end was not confirmed in time.
        """
        report, wait_s = DeleteReport([], {}), request.wait_s(wait, wait_timeout)
        if self._gateway is None:
            async with asyncio.TaskGroup() as deletes:
                for member in self:
                    deletes.create_task(_delete_one(member, report, wait=wait, wait_timeout=wait_timeout))
        elif not self._deleted or wait:
            report = await delete_group(self._gateway, self.name, wait_s=wait_s)
            self._deleted = not report.failed
        await self._release()
        return report

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            report = DeleteReport([], {}) if self._detached else await self.delete()
            if report.failed:
                raise next(iter(report.failed.values()))
        except SandboxError as cleanup:
            # The error of the block is the one to raise; the failed cleanup becomes a note on it.
            if error is None:
                raise
            error.add_note(f"Group {self.name} could not be deleted either: {cleanup}")
        finally:
            await self._release()

    async def _release(self) -> None:
        if self._leased and self._gateway is not None:
            self._leased = False
            await shared.release(self._gateway)

    def __repr__(self) -> str:
        return f"SandboxGroup(name={self.name!r}, sandboxes={len(self._members)}, failed={len(self.failed)})"


def checked_name(name: str) -> str:
    """Return the name of a group.

    Raises:
        InvalidArgument: it is not 1 to 100 of A-Za-z0-9._-, alphanumeric at both ends.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"the name of a group {name!r} is not 1 to 100 of A-Za-z0-9._-, alphanumeric at both ends"
        )
    return name


async def delete_group(gateway: Gateway, name: str, *, wait_s: float = 0.0) -> DeleteReport:
    """Delete all sandboxes of the group of this name; idempotent, also when there is none."""
    answer = await gateway.delete_group(name, wait_s=wait_s)
    report = DeleteReport(answer["deleted"], {})
    for item in answer["failed"]:
        report.failed[item["id"]] = error_from_problem({**item, "details": {"sandbox_id": item["id"]}}, {})
    return report


async def _delete_once(gateway: Gateway, name: str) -> None:
    await delete_group(gateway, name)


async def _opened(
    client: GatewayOwner | None,
    name: str,
    call: Callable[[Gateway], Awaitable[dict[str, Any]]],
    *,
    attach: bool = False,
) -> SandboxGroup[Sandbox]:
    gateway = await shared.gateway_of(client)
    try:
        made, failed = _members_of(gateway, await call(gateway))
        group = SandboxGroup(name, made, failed, gateway, leased=client is None)
        if attach:
            await group.attach()
    except BaseException:
        if client is None:
            await shared.release(gateway)
        raise
    return group


async def _created(
    gateway: Gateway, name: str, body: dict[str, Any], *, forget: bool, deadline: Deadline
) -> dict[str, Any]:
    body = {**body, "sandbox": current.labelled(body["sandbox"])}
    if tracing.tracer() is None:
        return await _noted(gateway, name, body, forget=forget, deadline=deadline)
    with tracing.grouping(body["sandbox"], body["count"]):
        return await _noted(gateway, name, body, forget=forget, deadline=deadline)


async def _noted(
    gateway: Gateway, name: str, body: dict[str, Any], *, forget: bool, deadline: Deadline
) -> dict[str, Any]:
    run = current.current()
    if run is None:
        return await _asked(gateway, name, body, forget=forget, deadline=deadline)
    with run.creating(body["sandbox"], body["count"]) as create:
        answer = await _asked(gateway, name, body, forget=forget, deadline=deadline)
        for member in answer["members"]:
            if member["sandbox"]:
                create.made(SandboxRecord.from_json(member["sandbox"]))
            else:
                create.failed(error_from_problem(member["problem"], {}))
        return answer


async def _asked(
    gateway: Gateway, name: str, body: dict[str, Any], *, forget: bool, deadline: Deadline
) -> dict[str, Any]:
    body = {**body, "sandbox": gateway.leases.with_lease(body["sandbox"])}
    headers = {CALL_ID: uuid4().hex}

    async def withdrawn() -> None:
        await gateway.call_api("DELETE", "groups", name, query=[("count", str(body["count"]))], headers=headers)

    try:
        with gateway.breaker.watching():
            answer: dict[str, Any] = await gateway.call_api(
                "PUT", "groups", name, body=body, headers=headers, deadline=deadline
            )
            # A group without any sandbox is a failed create: it is raised as one, and counts for the circuit breaker.
            if not any(member["sandbox"] for member in answer["members"]):
                raise error_from_problem(answer["members"][0]["problem"], {})
            return answer
    except asyncio.CancelledError:
        await gateway.run_cleanup(withdrawn())
        raise
    except SandboxError as error:
        if forget and error.code in REPEATABLE:
            await gateway.run_cleanup(withdrawn())
        raise


def _members_of(gateway: Gateway, answer: Mapping[str, Any]) -> tuple[dict[int, Sandbox], dict[int, SandboxError]]:
    made: dict[int, Sandbox] = {}
    failed: dict[int, SandboxError] = {}
    for member in answer["members"]:
        if member["sandbox"]:
            made[member["sample"]] = Sandbox(gateway, gateway.opened(member["sandbox"]), leased=False)
        else:
            failed[member["sample"]] = error_from_problem(member["problem"], {})
    return made, failed


async def _attach_one(member: Sandbox | LazySandbox, failures: list[SandboxError]) -> None:
    try:
        if isinstance(member, Sandbox):
            await member._attach()  # noqa: SLF001 - `Sandbox.connect` is the public way
    except SandboxError as error:
        failures.append(error)


async def _delete_one(
    member: Sandbox | LazySandbox, report: DeleteReport, *, wait: bool, wait_timeout: float | None
) -> None:
    sandbox_id = member.id
    try:
        await member.delete(wait=wait, wait_timeout=wait_timeout)
        if sandbox_id is not None:
            report.deleted.append(sandbox_id)
    except SandboxError as error:
        report.failed[str(sandbox_id)] = error
