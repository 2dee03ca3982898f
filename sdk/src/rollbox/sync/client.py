"""The client without `await`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

import rollbox
from rollbox._problem import SandboxError
from rollbox.api_key import ApiKey, ApiKeyList, Duration, NewApiKey, Scope
from rollbox.audit import AuditList
from rollbox.breaker import BreakerPolicy
from rollbox.build import BuildOptions
from rollbox.capacity import Capacity
from rollbox.client import QuotaList
from rollbox.conversion import ConvertOptions
from rollbox.dataset import DatasetRecord, DatasetRecords
from rollbox.egress import EgressLog, EgressPolicy, EgressPreset, EgressPresets
from rollbox.events import DeadLetterList
from rollbox.health import Health
from rollbox.image import BuiltImage, Commits, ConversionProgress, ImageConfig, NodeImageList, PrefetchReport
from rollbox.node import Node, NodeList
from rollbox.options import CreateOptions
from rollbox.pool import Pool, PoolChanges, PoolList, PoolOptions, Warm
from rollbox.quota import Preflight, Quota, QuotaLimits
from rollbox.record import DeleteReport, SandboxList, SandboxRecord
from rollbox.retry import RetryPolicy
from rollbox.sync.events import Events
from rollbox.sync.loop_thread import awaited, run
from rollbox.sync.sandbox import Sandbox
from rollbox.timeline import ErrorContext, Timeline


class Client:
    """As `rollbox.Client`; a context manager."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retries: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
    ) -> None:
        """As `rollbox.Client`."""
        self.inner = rollbox.Client(url, api_key, retries=retries, breaker=breaker)

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.inner.url

    def create(self, image: str | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `rollbox.Sandbox.create`."""
        return Sandbox.create(image, client=self, **options)

    def connect(self, sandbox_id: str, *, attach: bool = False) -> Sandbox:
        """As `rollbox.Sandbox.connect`."""
        return Sandbox.connect(sandbox_id, attach=attach, client=self)

    def get(self, sandbox_id: str) -> SandboxRecord:
        """As `rollbox.Client.get`."""
        return run(self.inner.get(sandbox_id))

    def list(self, labels: Mapping[str, str] | None = None, *, all: bool = False) -> SandboxList:  # noqa: A002
        """As `rollbox.Client.list`."""
        return run(self.inner.list(labels, all=all))

    def delete(
        self,
        *sandbox_ids: str,
        labels: Mapping[str, str] | None = None,
        wait: bool = False,
        wait_timeout: float | None = None,
    ) -> DeleteReport:
        """As `rollbox.Client.delete`."""
        return run(self.inner.delete(*sandbox_ids, labels=labels, wait=wait, wait_timeout=wait_timeout))

    def quota(self, owner: str | None = None) -> Quota:
        """As `rollbox.Client.quota`."""
        return run(self.inner.quota(owner))

    def quotas(self) -> QuotaList:
        """As `rollbox.Client.quotas`."""
        return run(self.inner.quotas())

    def keys(self, owner: str | None = None) -> ApiKeyList:
        """As `rollbox.Client.keys`."""
        return run(self.inner.keys(owner))

    def create_key(
        self, name: str, scopes: Iterable[Scope | str], *, expires: Duration | None = "90d", owner: str | None = None
    ) -> NewApiKey:
        """As `rollbox.Client.create_key`."""
        return run(self.inner.create_key(name, scopes, expires=expires, owner=owner))

    def rotate_key(self, key_id: str, *, grace: Duration = "1h") -> NewApiKey:
        """As `rollbox.Client.rotate_key`."""
        return run(self.inner.rotate_key(key_id, grace=grace))

    def revoke_key(self, key_id: str) -> ApiKey:
        """As `rollbox.Client.revoke_key`."""
        return run(self.inner.revoke_key(key_id))

    def capacity(self) -> Capacity:
        """As `rollbox.Client.capacity`."""
        return run(self.inner.capacity())

    def nodes(self) -> NodeList:
        """As `rollbox.Client.nodes`."""
        return run(self.inner.nodes())

    def node(self, name: str) -> Node:
        """As `rollbox.Client.node`."""
        return run(self.inner.node(name))

    def drain_node(self, name: str, deadline: float | None = None) -> Node:
        """As `rollbox.Client.drain_node`."""
        return run(self.inner.drain_node(name, deadline))

    def undrain_node(self, name: str) -> Node:
        """As `rollbox.Client.undrain_node`."""
        return run(self.inner.undrain_node(name))

    def set_quota(self, owner: str, **limits: Unpack[QuotaLimits]) -> Quota:
        """As `rollbox.Client.set_quota`."""
        return run(self.inner.set_quota(owner, **limits))

    def remove_quota(self, owner: str) -> Quota:
        """As `rollbox.Client.remove_quota`."""
        return run(self.inner.remove_quota(owner))

    def egress_log(self, sandbox_id: str) -> EgressLog:
        """As `rollbox.Client.egress_log`."""
        return run(self.inner.egress_log(sandbox_id))

    def egress_presets(self) -> EgressPresets:
        """As `rollbox.Client.egress_presets`."""
        return run(self.inner.egress_presets())

    def egress_preset(self, name: str) -> EgressPreset:
        """As `rollbox.Client.egress_preset`."""
        return run(self.inner.egress_preset(name))

    def set_egress_preset(self, name: str, policy: EgressPolicy) -> EgressPreset:
        """As `rollbox.Client.set_egress_preset`."""
        return run(self.inner.set_egress_preset(name, policy))

    def remove_egress_preset(self, name: str) -> bool:
        """As `rollbox.Client.remove_egress_preset`."""
        return run(self.inner.remove_egress_preset(name))

    def preflight(self, image: str, n: int = 1, **options: Unpack[CreateOptions]) -> Preflight:
        """As `rollbox.Client.preflight`."""
        return run(self.inner.preflight(image, n, **options))

    def images(self) -> NodeImageList:
        """As `rollbox.Client.images`."""
        return run(self.inner.images())

    def image_config(self, image: str) -> ImageConfig:
        """As `rollbox.Client.image_config`."""
        return run(self.inner.image_config(image))

    def commits(self) -> Commits:
        """As `rollbox.Client.commits`."""
        return run(self.inner.commits())

    def remove_image(self, name: str) -> bool:
        """As `rollbox.Client.remove_image`."""
        return run(self.inner.remove_image(name))

    def build(self, folder: str | os.PathLike[str], **options: Unpack[BuildOptions]) -> BuiltImage:
        """As `await rollbox.Client.build`; iterate a `Build` for its progress."""
        return run(awaited(self.inner.build(folder, **options)))

    def audit(
        self,
        *,
        after_ms: int = 0,
        owner: str | None = None,
        key: str | None = None,
        name: str | None = None,
        request_id: str | None = None,
        most: int = 1_000,
    ) -> AuditList:
        """As `rollbox.Client.audit`."""
        asked = self.inner.audit(after_ms=after_ms, owner=owner, key=key, name=name, request_id=request_id, most=most)
        return run(asked)

    def events(
        self,
        after: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
        every_owner: bool = False,
    ) -> Events:
        """As `rollbox.Client.events`."""
        return Events(self, after, labels=labels, follow=follow, every_owner=every_owner)

    def dead_letters(self, *, webhook: str | None = None, after_ms: int = 0, most: int = 100) -> DeadLetterList:
        """As `rollbox.Client.dead_letters`."""
        return run(self.inner.dead_letters(webhook=webhook, after_ms=after_ms, most=most))

    def prefetch(
        self,
        images: str | Iterable[str],
        *,
        nodes: int | None = None,
    ) -> PrefetchReport:
        """As `await rollbox.Client.prefetch`; iterate a `Prefetch` for its progress."""
        return run(awaited(self.inner.prefetch(images, nodes=nodes)))

    def convert(self, image: str, **options: Unpack[ConvertOptions]) -> ConversionProgress:
        """As `await rollbox.Client.convert`; iterate a `Conversion` for its progress."""
        return run(awaited(self.inner.convert(image, **options)))

    def pools(self) -> PoolList:
        """As `rollbox.Client.pools`."""
        return run(self.inner.pools())

    def pool(self, name: str) -> Pool:
        """As `rollbox.Client.pool`."""
        return run(self.inner.pool(name))

    def set_pool(self, name: str, image: str, warm: Warm, **options: Unpack[PoolOptions]) -> Pool:
        """As `rollbox.Client.set_pool`."""
        return run(self.inner.set_pool(name, image, warm, **options))

    def change_pool(self, name: str, **changes: Unpack[PoolChanges]) -> Pool:
        """As `rollbox.Client.change_pool`."""
        return run(self.inner.change_pool(name, **changes))

    def remove_pool(self, name: str) -> bool:
        """As `rollbox.Client.remove_pool`."""
        return run(self.inner.remove_pool(name))

    def datasets(self) -> DatasetRecords:
        """As `rollbox.Client.datasets`."""
        return run(self.inner.datasets())

    def dataset(self, name: str) -> DatasetRecord:
        """As `rollbox.Client.dataset`."""
        return run(self.inner.dataset(name))

    def set_dataset(
        self,
        name: str,
        *,
        claim: str | None = None,
        image: str | None = None,
        folder: str | None = None,
        owners: Sequence[str] = (),
    ) -> DatasetRecord:
        """As `rollbox.Client.set_dataset`."""
        return run(self.inner.set_dataset(name, claim=claim, image=image, folder=folder, owners=owners))

    def remove_dataset(self, name: str) -> bool:
        """As `rollbox.Client.remove_dataset`."""
        return run(self.inner.remove_dataset(name))

    def timeline(self, sandbox_id: str) -> Timeline:
        """As `rollbox.Client.timeline`."""
        return run(self.inner.timeline(sandbox_id))

    def error_context(self, error: SandboxError) -> ErrorContext:
        """As `rollbox.Client.error_context`."""
        return run(self.inner.error_context(error))

    def health(self) -> Health:
        """As `rollbox.Client.health`."""
        return run(self.inner.health())

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
