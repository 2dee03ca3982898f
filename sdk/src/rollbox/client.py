"""A client of one gateway, for programs that need another address, key or lifetime than the shared client has."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias, Unpack

from rollbox import request, settings
from rollbox._problem import SandboxError
from rollbox.api_key import ApiKey, ApiKeyList, Duration, NewApiKey, Scope, duration_ms, key_body
from rollbox.audit import AuditEntry, AuditList
from rollbox.breaker import BreakerPolicy
from rollbox.build import Build, BuildOptions
from rollbox.capacity import Capacity
from rollbox.conversion import Conversion, ConvertOptions
from rollbox.dataset import DatasetRecord, DatasetRecords, dataset_body
from rollbox.egress import EgressAttempt, EgressLog, EgressPolicy, EgressPreset, EgressPresets
from rollbox.errors import BY_CODE, InvalidArgument
from rollbox.events import DeadLetter, DeadLetterList, Events
from rollbox.files import initial
from rollbox.gateway import Gateway
from rollbox.health import Health
from rollbox.image import Commits, ImageConfig, NodeImage, NodeImageList
from rollbox.node import Node, NodeList
from rollbox.options import CreateOptions, CreateSpec
from rollbox.pool import Pool, PoolChanges, PoolList, PoolOptions, Warm, changes_body, pool_body
from rollbox.prefetch import Prefetch
from rollbox.quota import Preflight, Quota, QuotaLimits, limits_body
from rollbox.record import DeleteReport, SandboxList, SandboxRecord
from rollbox.retry import RetryPolicy
from rollbox.sandbox import Sandbox
from rollbox.timeline import ErrorContext, Timeline

# Inside the class `list` is a method, so annotations there cannot use the builtin.
QuotaList: TypeAlias = list[Quota]
# Limits the connections of this client; the server would bear more deletes at a time.
_DELETES_AT_ONCE = 32


class Client:
    """A client of one gateway with one API key and one connection pool, for one event loop.

    Close it with `async with` or `aclose()`. Its sandboxes cannot be used after that; they end with their lease or ttl.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retries: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
    ) -> None:
        """Resolve address and key; nothing is sent.

        Args:
            url: address of the gateway; None takes ROLLBOX_URL or what `rollbox up` wrote on this machine.
            api_key: the key of an owner; None takes ROLLBOX_API_KEY or the same file.
            retries: the retry policy of its requests.
            breaker: when the circuit breaker refuses creates during an outage of the platform.

        Raises:
            InvalidArgument, Unauthenticated: there is no address or no key.
        """
        self.gateway = Gateway(settings.resolve(url, api_key), retries or RetryPolicy(), breaker)

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.gateway.settings.url

    async def create(self, image: str | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `Sandbox.create`."""
        return await Sandbox.create(image, client=self, **options)

    async def connect(self, sandbox_id: str, *, attach: bool = False) -> Sandbox:
        """As `Sandbox.connect`."""
        return await Sandbox.connect(sandbox_id, attach=attach, client=self)

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the record of a sandbox, which is kept for 24 hours after its end, unless the store is lost.

        Raises:
            SandboxNotFound: there is no such record.
        """
        return await self.gateway.get(sandbox_id)

    async def list(self, labels: Mapping[str, str] | None = None, *, all: bool = False) -> SandboxList:  # noqa: A002
        """List the owner's sandboxes that have all these labels; with `all`, ended ones too."""
        return await self.gateway.list(labels, ended=all)

    async def delete(
        self,
        *sandbox_ids: str,
        labels: Mapping[str, str] | None = None,
        wait: bool = False,
        wait_timeout: float | None = None,
    ) -> DeleteReport:
        """Delete sandboxes by id, and all that have all these labels.

        Args:
            *sandbox_ids: their ids.
            labels: delete all sandboxes that have all of these.
            wait: wait until the cluster has confirmed that nothing of them runs any more; see `Sandbox.delete`.
            wait_timeout: seconds to wait for that at most; 60 when None.

        Returns:
            what was deleted, and the error of each sandbox that was not, or whose end was not confirmed in time. An
            unknown id is in `failed` too, it is not raised.

        Raises:
            InvalidArgument: neither ids nor labels are given.
            SandboxError: the delete by labels failed as a whole.
        """
        if not sandbox_ids and not labels:
            raise InvalidArgument("neither ids nor labels are given: nothing to delete")
        report, wait_s = DeleteReport([], {}), request.wait_s(wait, wait_timeout)
        if labels:
            answer = await self.gateway.delete_labelled(labels, wait_s=wait_s)
            report.deleted.extend(answer["deleted"])
            for item in answer["failed"]:
                kind = BY_CODE.get(item["code"], SandboxError)
                report.failed[item["id"]] = kind(item["detail"], sandbox_id=item["id"])
        slots = asyncio.Semaphore(_DELETES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for sandbox_id in dict.fromkeys(sandbox_ids):
                group.create_task(self._delete_one(sandbox_id, slots, report, wait_s))
        return report

    async def _delete_one(self, sandbox_id: str, slots: asyncio.Semaphore, report: DeleteReport, wait_s: float) -> None:
        async with slots:
            try:
                await self.gateway.delete(sandbox_id, wait_s=wait_s)
                report.deleted.append(sandbox_id)
            except SandboxError as error:
                report.failed[sandbox_id] = error

    async def quota(self, owner: str | None = None) -> Quota:
        """Return limits, use and waiting creates of your quota, or of an owner's: yours; of others for operators."""
        path = ("quota",) if owner is None else ("quotas", _named("owner", owner))
        return Quota.from_json(await self.gateway.call_api("GET", *path))

    async def quotas(self) -> QuotaList:
        """Return all declared quotas; for operators."""
        return [Quota.from_json(one) for one in (await self.gateway.call_api("GET", "quotas"))["quotas"]]

    async def set_quota(self, owner: str, **limits: Unpack[QuotaLimits]) -> Quota:
        """Change limits of an owner's quota, for operators; omitted limits stay, None removes one.

        No sandbox ends: while use is over a limit, nothing new is admitted.

        Args:
            owner: "*" for all owners without a quota of their own.
            **limits: sandboxes, cpu (cores), memory (bytes or "64Gi"), gpu: sums of what is requested, at one time;
                starting: sandboxes that are not ready yet; egress_connections, egress_connections_per_second,
                egress_bytes_per_second and egress_daily_bytes (since midnight UTC): of all the owner's sandboxes, at
                each egress replica.

        Raises:
            InvalidArgument: no limit is given, or one is invalid.
            Unsupported: one of egress, where that is not installed.
            PermissionDenied: the key is not an operator's.
        """
        body = limits_body(limits)
        if not body:
            raise InvalidArgument(f"no limit is given: name one of {', '.join(QuotaLimits.__annotations__)}")
        return Quota.from_json(await self.gateway.call_api("PATCH", "quotas", _named("owner", owner), body=body))

    async def remove_quota(self, owner: str) -> Quota:
        """Remove an owner's quota, for operators; returns the quota that then applies ("*", or none). Idempotent."""
        return Quota.from_json(await self.gateway.call_api("DELETE", "quotas", _named("owner", owner)))

    async def keys(self, owner: str | None = None) -> ApiKeyList:
        """Return your API keys without their texts, oldest first, or for operators an owner's.

        Those of the installation's settings are not among them. Keys that are in force no more stay for 30 days.
        """
        query = [] if owner is None else [("owner", _named("owner", owner))]
        found = (await self.gateway.call_api("GET", "keys", query=query))["keys"]
        return [ApiKey.from_json(one) for one in found]

    async def create_key(
        self, name: str, scopes: Iterable[Scope | str], *, expires: Duration | None = "90d", owner: str | None = None
    ) -> NewApiKey:
        """Make an API key; the answer has its text, which no later call returns.

        Args:
            name: for people; no two valid keys of an owner have the same.
            scopes: what it allows beside reading: "run" (sandboxes and groups), "images" (build, prefetch, commit,
                remove), "egress" (presets), "pools", "keys" (keys of its owner) and "operator"; or "read" alone.
            expires: seconds or a text like "30d"; None: never.
            owner: of another one, for operators.

        Raises:
            PermissionDenied: it would allow more than this client's key, or for longer.
            Conflict: there is a valid key of this name.
        """
        body = key_body(name, scopes, expires, None if owner is None else _named("owner", owner))
        return NewApiKey.from_json(await self.gateway.call_api("POST", "keys", body=body))

    async def rotate_key(self, key_id: str, *, grace: Duration = "1h") -> NewApiKey:
        """Give an API key another text; id, name, scopes and the length of its life stay.

        Args:
            key_id: which one.
            grace: seconds or a text: so long the text before holds too, at most 7 days; 0 where it has leaked.
        """
        body = {"grace_ms": duration_ms("grace", grace)}
        answer = await self.gateway.call_api("POST", "keys", _named("key", key_id), "rotate", body=body)
        return NewApiKey.from_json(answer)

    async def revoke_key(self, key_id: str) -> ApiKey:
        """End an API key: it is refused everywhere half a second later. Idempotent.

        Tokens of sandboxes that it was given hold until these end.
        """
        return ApiKey.from_json(await self.gateway.call_api("DELETE", "keys", _named("key", key_id)))

    async def capacity(self) -> Capacity:
        """Return what is free on the nodes, and which starts wait for room; for operators.

        Raises:
            PermissionDenied: the key is not an operator's.
        """
        return Capacity.from_json(await self.gateway.call_api("GET", "capacity"))

    async def audit(
        self,
        *,
        after_ms: int = 0,
        owner: str | None = None,
        key: str | None = None,
        name: str | None = None,
        request_id: str | None = None,
        most: int = 1_000,
    ) -> AuditList:
        """Return which key has done what, oldest first; for operators.

        Args:
            after_ms: what came later than this (Unix ms).
            owner: whose key it was.
            key: the id of the key.
            name: about this sandbox, pool, image, key or other thing.
            request_id: of this request.
            most: the newest so many of them, up to 10,000.

        Raises:
            PermissionDenied: the key is not an operator's.
            Unsupported: this installation keeps no entries for reading.
        """
        asked = {"owner": owner, "key_id": key, "name": name, "request_id": request_id}
        query = [(one, value) for one, value in asked.items() if value is not None]
        query += [("after_ms", str(after_ms)), ("most", str(most))]
        told = await self.gateway.call_api("GET", "audit", query=query)
        return [AuditEntry.from_json(one) for one in told["entries"]]

    async def nodes(self) -> NodeList:
        """Return the nodes that sandboxes may run on, by name; for operators.

        Raises:
            PermissionDenied: the key is not an operator's.
            Unsupported: it is no cluster, but one machine.
        """
        return [Node.from_json(one) for one in (await self.gateway.call_api("GET", "nodes"))["nodes"]]

    async def node(self, name: str) -> Node:
        """Return one node, for operators; NotFound when no sandbox may run on it."""
        return Node.from_json(await self.gateway.call_api("GET", "nodes", _named("node", name)))

    async def drain_node(self, name: str, deadline: float | None = None) -> Node:
        """Cordon a node and empty it, for operators; repeat it to set another deadline.

        Nothing new comes there, warm sandboxes end at once, claimed ones at their own end or at the deadline: then as
        `sandbox_evicted`, after their owners could hear of it (`Sandbox.draining_at`).

        Args:
            name: of the node.
            deadline: seconds after which what is left there ends; 0: at once; None: as long as sandboxes may live.

        Raises:
            NotFound: no sandbox may run on such a node.
            Unsupported: this installation may not change nodes, or is one machine.
        Cost: one request; `node` says how far it has come.
        """
        within_ms = None if deadline is None else request.milliseconds("deadline", deadline) if deadline else 0
        body = {"within_ms": within_ms}
        return Node.from_json(await self.gateway.call_api("PUT", "nodes", _named("node", name), "drain", body=body))

    async def undrain_node(self, name: str) -> Node:
        """Take a drain back, also in the middle, for operators. Idempotent.

        Raises:
            Conflict: something else than `drain_node` has the node emptied, such as a cloud that takes it away.
        """
        return Node.from_json(await self.gateway.call_api("DELETE", "nodes", _named("node", name), "drain"))

    async def egress_log(self, sandbox_id: str) -> EgressLog:
        """Return what programs in a sandbox tried to reach, also after its end; see `Sandbox.egress_log`."""
        parts = ("sandboxes", _named("sandbox", sandbox_id), "egress", "log")
        told = await self.gateway.call_api("GET", *parts, sandbox_id=sandbox_id)
        return [EgressAttempt.from_json(one) for one in told["attempts"]]

    async def egress_presets(self) -> EgressPresets:
        """Return the presets of network policies that you may ask for, by name.

        Raises:
            Unsupported: egress is not installed.
        """
        told = await self.gateway.call_api("GET", "egress", "presets")
        return [EgressPreset.from_json(one) for one in told["presets"]]

    async def egress_preset(self, name: str) -> EgressPreset:
        """Return one preset; NotFound when there is none."""
        return EgressPreset.from_json(await self.gateway.call_api("GET", "egress", "presets", _named("preset", name)))

    async def set_egress_preset(self, name: str, policy: EgressPolicy) -> EgressPreset:
        """Declare a preset of yours, in the place of the one before. Sandboxes keep the rules that they got.

        Args:
            name: 1 to 40 of a-z, 0-9 and "-".
            policy: what a sandbox with it may reach.

        Raises:
            Conflict: the installation has a preset of this name.
            InvalidArgument: the policy is not sound; the detail says why.
        """
        parts, body = ("egress", "presets", _named("preset", name)), policy.to_json()
        return EgressPreset.from_json(await self.gateway.call_api("PUT", *parts, body=body))

    async def remove_egress_preset(self, name: str) -> bool:
        """Remove a preset of yours; returns whether there was one. Sandboxes that have it keep it. Idempotent."""
        parts = ("egress", "presets", _named("preset", name))
        return bool((await self.gateway.call_api("DELETE", *parts))["removed"])

    async def preflight(self, image: str, n: int = 1, **options: Unpack[CreateOptions]) -> Preflight:
        """Check a run of `n` sandboxes at the same time against quota, capacity, image and policies.

        Nothing is started or reserved; `Preflight.require()` raises what prevents the run.

        Args:
            image: of all of them.
            n: how many at the same time.
            **options: as of `Sandbox.create`.
        """
        spec = CreateSpec.of(image, options)
        initial.checked(spec.files)
        # A lease belongs to an existing sandbox and does not change what one needs.
        body = {"sandbox": spec.without_lease().to_json(), "count": request.count("n", n)}
        answer = await self.gateway.call_api("POST", "preflight", body=body)
        return Preflight.from_json(answer)

    async def images(self) -> NodeImageList:
        """Return the images on the nodes, by node and name; none that another owner has committed.

        Raises:
            Unsupported: this installation cannot tell.
        """
        return [NodeImage.from_json(one) for one in (await self.gateway.call_api("GET", "images"))["images"]]

    async def image_config(self, image: str) -> ImageConfig:
        """Return what the image that a create of this name would start from says of the processes that run from it.

        Nothing is pulled. A sandbox has the variables, the directory and the user, and runs no command by itself.

        Args:
            image: as for `create`.

        Raises:
            InvalidArgument: it is no name of an image.
            ImageNotFound: there is none, or no registry is asked and it has not been pulled (`prefetch` does).
            ImagePullFailed: its registry does not say.
            PermissionDenied: it is another owner's.
        """
        if not isinstance(image, str) or not image.strip():
            raise InvalidArgument(f"image {image!r} is not a name")
        parts = ("images", "config", *str(image).split("/"))
        return ImageConfig.from_json(await self.gateway.call_api("GET", *parts))

    async def commits(self) -> Commits:
        """Return your images that were made of sandboxes, what they take, and what they may.

        Raises:
            Unsupported: the installation makes none; the detail names the setting.
        """
        return Commits.from_json(await self.gateway.call_api("GET", "images", "commits"))

    async def remove_image(self, name: str) -> bool:
        """Remove an image that was made of a sandbox, with all its names; returns whether there was one. Idempotent.

        Args:
            name: what `Sandbox.commit` was given or has returned; with a digest also an image whose name another
                commit has taken.

        Raises:
            Conflict: a sandbox, a pool or another of your images needs it; the detail names some.
            PermissionDenied: it is another owner's.
        """
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgument(f"image {name!r} is not a name")
        # An escaped slash is refused on the way.
        removed: bool = (await self.gateway.call_api("DELETE", "images", "commits", *str(name).split("/")))["removed"]
        return removed

    def build(self, folder: str | os.PathLike[str], **options: Unpack[BuildOptions]) -> Build:
        """Build an image from a Dockerfile: await the image, or iterate for the progress.

        What was built before from the same Dockerfile, context, arguments, target and base is not built again. The
        image is yours alone, and listed and removed as those of sandboxes (`commits`, `remove_image`). Steps have no
        network without `egress`.

        Args:
            folder: the context, with the Dockerfile; what its .dockerignore excludes is never sent.
            options: of `BuildOptions`: `file`, `args`, `target`, `secrets`, `egress`, `timeout`, `max_bytes`.

        Returns:
            a `Build`; awaited, a `BuiltImage`: a `str` for all that takes an image.

        Raises:
            InvalidArgument, PayloadTooLarge: on `await` or iteration: of the folder, or of the Dockerfile.
            Unsupported: the Dockerfile has what is not built here, or no images are.
            BuildFailed: a step has failed, or it took too long.
            ImageNotFound, ImagePullFailed, PermissionDenied: of an image that it begins with.
            QuotaExceeded, RateLimited: you have too many bytes of images, or builds that wait.
        """
        return Build(self.gateway, folder, options)

    def events(
        self,
        after: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
        every_owner: bool = False,
    ) -> Events:
        """What happens to the owner's sandboxes: iterate it; each event is told once.

        Args:
            after: the `cursor` of what was read last, also by another process: it goes on there. None: it begins now.
                The timelines of sandboxes go back a day, and so do their events.
            labels: of sandboxes that have all of these.
            follow: whether it goes on with what happens from now on.
            every_owner: of everybody's sandboxes; for operators.

        Raises:
            InvalidArgument: a label or the cursor is malformed.
            PermissionDenied: on iteration, `every_owner` without an operator's key.
            RateLimited: on iteration, too many streams are open.

        Cost: one connection for all sandboxes; with `after` a read of all their records.
        """
        return Events(self.gateway, after, labels=labels, follow=follow, every_owner=every_owner)

    async def dead_letters(self, *, webhook: str | None = None, after_ms: int = 0, most: int = 100) -> DeadLetterList:
        """Return what webhooks did not take, oldest first; for operators.

        Args:
            webhook: of this one alone.
            after_ms: what was given up later than this (Unix ms).
            most: the newest so many of them, up to 1,000.

        Raises:
            PermissionDenied: the key is not an operator's.
            NotFound: there is no such webhook.
            Unsupported: this installation has no webhooks.
        """
        query = [] if webhook is None else [("webhook", webhook)]
        query += [("after_ms", str(after_ms)), ("most", str(most))]
        told = await self.gateway.call_api("GET", "events", "dead", query=query)
        return [DeadLetter.from_json(one) for one in told["letters"]]

    def prefetch(self, images: str | Iterable[str], *, nodes: int | None = None) -> Prefetch:
        """Pull images to the nodes before sandboxes need them: await it for its report, or iterate it for its progress.

        A failure of an image on a node is in the report; only what concerns all of them is raised.

        Args:
            images: their names, as for `Sandbox.create`.
            nodes: on how many nodes each is to be, with those that have it already; None is all. Creates of these
                images prefer the nodes that have them.

        Raises:
            InvalidArgument, Unsupported, PermissionDenied: on `await` or iteration, before anything is pulled.
        """
        return Prefetch(self.gateway, images, nodes)

    def convert(self, image: str, **options: Unpack[ConvertOptions]) -> Conversion:
        """Convert an image, so that nodes mount it while they fetch it: await its end, or iterate it for its progress.

        Starts of it are given the result once a sandbox has been started from it. That happens by itself behind the
        first start of an image; this is for before.

        Args:
            image: its name, as for `Sandbox.create`.
            options: `first` or `record` (with `record_timeout`), of `ConvertOptions`: files that come first. The result
                is a copy that your own starts alone get; those of other owners stay as they are.

        Raises:
            InvalidArgument: `first` is not a sequence of paths; both are given.
            Unsupported: on `await` or iteration: nothing is converted or recorded here, or this image cannot be.
            ExecDeadline: the recorded command was not over in time; nothing has changed.
            ImageNotFound, ImagePullFailed: as for a create.
        """
        return Conversion(self.gateway, image, options)

    async def pools(self) -> PoolList:
        """Return all pools, by name."""
        return [Pool.from_json(one) for one in (await self.gateway.call_api("GET", "pools"))["pools"]]

    async def pool(self, name: str) -> Pool:
        """Return one pool with the reasons for its state; NotFound when there is none."""
        return Pool.from_json(await self.gateway.call_api("GET", "pools", _named("pool", name)))

    async def set_pool(self, name: str, image: str, warm: Warm, **options: Unpack[PoolOptions]) -> Pool:
        """Declare a pool, or replace one, for operators: sandboxes of one template that are kept ready.

        `Sandbox.create` claims from it when image, cpu, memory, pids, disk, gpu, node_selector, pull, network and
        mounts are the same; all other options are applied at the claim. A changed template rolls the pool: sandboxes
        of the old one are claimed until new ones are ready.

        Args:
            name: 1 to 63 of a-z, 0-9 and "-".
            image: of its sandboxes.
            warm: how many are kept ready, or (minimum, maximum), between which the size follows the claims.
            **options: the template's as in `Sandbox.create`; starts_per_minute: the most in any minute; surge: how
                many more there may be while a template is replaced; recording_of: the owner whose recorded copy of the
                image (`convert`) they are started from, where there is one; interpreter: "python": each of them keeps
                one running (about 5 MiB), which the first `sandbox.interpreter()` with nothing but defaults gets.

        Raises:
            InvalidArgument: an argument is invalid.
            PermissionDenied: the key is not an operator's.
        """
        body = pool_body(image, warm, options)
        return Pool.from_json(await self.gateway.call_api("PUT", "pools", _named("pool", name), body=body))

    async def change_pool(self, name: str, **changes: Unpack[PoolChanges]) -> Pool:
        """Change sizes or rates of a pool, for operators; `drain=True` keeps it empty until `drain=False`."""
        body = changes_body(changes)
        return Pool.from_json(await self.gateway.call_api("PATCH", "pools", _named("pool", name), body=body))

    async def remove_pool(self, name: str) -> bool:
        """Remove a pool, for operators; returns whether there was one. Claimed sandboxes go on. Idempotent."""
        removed: bool = (await self.gateway.call_api("DELETE", "pools", _named("pool", name)))["removed"]
        return removed

    async def datasets(self) -> DatasetRecords:
        """Return the data sets that you may mount, by name; for operators all there are."""
        told = await self.gateway.call_api("GET", "datasets")
        return [DatasetRecord.from_json(one) for one in told["datasets"]]

    async def dataset(self, name: str) -> DatasetRecord:
        """Return one data set; NotFound when there is none, PermissionDenied when it is not for you."""
        return DatasetRecord.from_json(await self.gateway.call_api("GET", "datasets", _named("data set", name)))

    async def set_dataset(
        self,
        name: str,
        *,
        claim: str | None = None,
        image: str | None = None,
        folder: str | None = None,
        owners: Sequence[str] = (),
    ) -> DatasetRecord:
        """Declare a data set, in the place of the one before, for operators. Sandboxes keep what they have mounted.

        Args:
            name: 1 to 63 of a-z, 0-9 and "-".
            claim: a PersistentVolumeClaim in the sandboxes' namespace that many pods may read.
            image: an OCI image or artifact, where nodes have image volumes.
            folder: of every node, below a folder that the chart's values allow.
            owners: who may mount it; empty: everybody.

        Raises:
            InvalidArgument: not exactly one of claim, image and folder is given.
            PermissionDenied: the key is not an operator's, or the folder is not one that may be mounted.
            Unsupported: this backend cannot mount that; on an engine, `rollbox up --dataset` declares data sets.
        """
        body = dataset_body(claim, image, folder, owners)
        parts = ("datasets", _named("data set", name))
        return DatasetRecord.from_json(await self.gateway.call_api("PUT", *parts, body=body))

    async def remove_dataset(self, name: str) -> bool:
        """Take a data set back, for operators; returns whether there was one. Its files stay. Idempotent."""
        return bool((await self.gateway.call_api("DELETE", "datasets", _named("data set", name)))["removed"])

    async def timeline(self, sandbox_id: str) -> Timeline:
        """Return the timeline of a sandbox, which is kept for 24 hours after its end, unless the store is lost.

        Raises:
            SandboxNotFound: there is no record of the sandbox.
        """
        path = ("sandboxes", sandbox_id, "timeline")
        return Timeline.from_json(await self.gateway.call_api("GET", *path, sandbox_id=sandbox_id))

    async def error_context(self, error: SandboxError) -> ErrorContext:
        """Combine an error with the timeline of its sandbox, for logs; never raises a SandboxError.

        Cost: one request, if the error has a sandbox id.
        """
        if error.sandbox_id is None:
            return ErrorContext.of(error, None, "the error has no sandbox id")
        try:
            return ErrorContext.of(error, await self.timeline(error.sandbox_id), "")
        except SandboxError as missing:
            return ErrorContext.of(error, None, f"{missing.code}: {missing.detail}")

    async def health(self) -> Health:
        """Check whether the platform answers and whether the circuit breaker is open; never raises a SandboxError.

        Cost: one request without retries, of at most 5 s.
        """
        return await Health.of(self.gateway)

    async def info(self) -> dict[str, Any]:
        """Return what this installation is: version, backend, isolation in force, network, limits."""
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


def _named(name: str, value: str) -> str:
    """Check a name that becomes part of a URL."""
    if not isinstance(value, str) or not value.strip() or "/" in value:
        raise InvalidArgument(f"{name} {value!r} is not a name")
    return value
