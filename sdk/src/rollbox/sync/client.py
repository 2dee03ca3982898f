"""The client without `await`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Unpack

import rollbox
from rollbox.record import DeleteReport, SandboxList, SandboxRecord
from rollbox.request import CreateOptions
from rollbox.retry import RetryPolicy
from rollbox.sync.portal import run
from rollbox.sync.sandbox import Sandbox


class Client:
    """As `rollbox.Client`; a context manager."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, retries: RetryPolicy | None = None
    ) -> None:
        """As `rollbox.Client`."""
        self.inner = rollbox.Client(url, api_key, retries=retries)

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.inner.url

    def create(self, image: str, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `rollbox.Sandbox.create`."""
        return Sandbox.create(image, client=self, **options)

    def connect(self, sandbox_id: str) -> Sandbox:
        """As `rollbox.Sandbox.connect`."""
        return Sandbox.connect(sandbox_id, client=self)

    def get(self, sandbox_id: str) -> SandboxRecord:
        """As `rollbox.Client.get`."""
        return run(self.inner.get(sandbox_id))

    def list(self, labels: Mapping[str, str] | None = None, *, all: bool = False) -> SandboxList:  # noqa: A002
        """As `rollbox.Client.list`."""
        return run(self.inner.list(labels, all=all))

    def delete(self, *sandbox_ids: str, labels: Mapping[str, str] | None = None) -> DeleteReport:
        """As `rollbox.Client.delete`."""
        return run(self.inner.delete(*sandbox_ids, labels=labels))

    def info(self) -> dict[str, Any]:
        """As `rollbox.Client.info`."""
        return run(self.inner.info())

    def close(self) -> None:
        """Close all connections. Idempotent."""
        run(self.inner.aclose())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
