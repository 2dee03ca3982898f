"""A client of one gateway, for programs that want their own address, key or lifetime instead of the shared one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Unpack

from rollbox import settings
from rollbox._problem import SandboxError
from rollbox.errors import BY_CODE, InvalidArgument
from rollbox.gateway import Gateway
from rollbox.record import DeleteReport, SandboxList, SandboxRecord
from rollbox.request import CreateOptions
from rollbox.retry import RetryPolicy
from rollbox.sandbox import Sandbox

# Deletes are cheap for the server, connections are not for a laptop.
_DELETES_AT_ONCE = 32


class Client:
    """Calls to one gateway with one key, over one pool of connections, from one event loop.

    Close it with `async with` or `aclose()`. Sandboxes made by it live on (until their ttl) but cannot be used after.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, retries: RetryPolicy | None = None
    ) -> None:
        """Find the settings; nothing is sent.

        Args:
            url: address of the gateway; None takes ROLLBOX_URL or what `rollbox up` wrote on this machine.
            api_key: the key of an owner; None takes ROLLBOX_API_KEY or the same file.
            retries: how to repeat requests.

        Raises:
            InvalidArgument, Unauthenticated: there is no address or no key.
        """
        self.gateway = Gateway(settings.resolve(url, api_key), retries or RetryPolicy())

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.gateway.settings.url

    async def create(self, image: str, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `Sandbox.create`."""
        return await Sandbox.create(image, client=self, **options)

    async def connect(self, sandbox_id: str) -> Sandbox:
        """As `Sandbox.connect`."""
        return await Sandbox.connect(sandbox_id, client=self)

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the record of one sandbox, for at least 24 hours after its end; SandboxNotFound when there is none."""
        return await self.gateway.get(sandbox_id)

    async def list(self, labels: Mapping[str, str] | None = None, *, all: bool = False) -> SandboxList:  # noqa: A002
        """List the owner's sandboxes that have all these labels; with `all`, those that ended too."""
        return await self.gateway.list(labels, ended=all)

    async def delete(self, *sandbox_ids: str, labels: Mapping[str, str] | None = None) -> DeleteReport:
        """Delete sandboxes by id, and all that have all these labels.

        Returns:
            what was deleted, and the error of each that was not: an unknown id is among the failed, not raised.

        Raises:
            InvalidArgument: neither ids nor labels are given.
            SandboxError: the gateway refused the labels, or is not there.
        """
        if not sandbox_ids and not labels:
            raise InvalidArgument("neither ids nor labels are given: nothing to delete")
        report = DeleteReport([], {})
        if labels:
            answer = await self.gateway.delete_labelled(labels)
            report.deleted.extend(answer["deleted"])
            for item in answer["failed"]:
                kind = BY_CODE.get(item["code"], SandboxError)
                report.failed[item["id"]] = kind(item["detail"], sandbox_id=item["id"])
        slots = asyncio.Semaphore(_DELETES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for sandbox_id in dict.fromkeys(sandbox_ids):
                group.create_task(self._delete_one(sandbox_id, slots, report))
        return report

    async def _delete_one(self, sandbox_id: str, slots: asyncio.Semaphore, report: DeleteReport) -> None:
        async with slots:
            try:
                await self.gateway.delete(sandbox_id)
                report.deleted.append(sandbox_id)
            except SandboxError as error:
                report.failed[sandbox_id] = error

    async def info(self) -> dict[str, Any]:
        """Tell what this installation is: version, backend, isolation in force, network, limits."""
        return await self.gateway.info()

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        await self.gateway.aclose()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Client(url={self.url!r})"
