"""``KubernetesCluster``: the cluster protocol on a Kubernetes API server, with one pod per sandbox."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from http import HTTPStatus
from typing import Final, Self

import structlog

from controlplane.capacity import Amounts, Room
from controlplane.clock import Clock, SystemClock
from controlplane.cluster.devices import refuse_gpu
from controlplane.cluster.drains import NodeDrains
from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient, NotAskedError
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.api_server.watch import Reflector
from controlplane.cluster.kubernetes.builds import PodBuilds
from controlplane.cluster.kubernetes.builds.pods import BuildPods
from controlplane.cluster.kubernetes.marks import (
    ANNOTATION_DATASETS,
    ANNOTATION_RECORD,
    ANNOTATION_START_BY,
    DOMAIN,
    KEPT,
    SIDECAR_PORT,
)
from controlplane.cluster.kubernetes.names import Names
from controlplane.cluster.kubernetes.node_agents import (
    LazyNodes,
    LazyPulling,
    NearNodes,
    NodeCommits,
    NodeImages,
    NodeParts,
    node_parts,
)
from controlplane.cluster.kubernetes.nodes import isolation, lazy
from controlplane.cluster.kubernetes.nodes.devices import API as DEVICES
from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims, NodeDevices
from controlplane.cluster.kubernetes.nodes.draining import Draining
from controlplane.cluster.kubernetes.nodes.lazy import LazyImages
from controlplane.cluster.kubernetes.nodes.lost_nodes import Nodes
from controlplane.cluster.kubernetes.nodes.node_leases import NodeLeases
from controlplane.cluster.kubernetes.nodes.node_room import NodeRooms
from controlplane.cluster.kubernetes.nodes.node_summary import NodeSummary
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node, of_pool
from controlplane.cluster.kubernetes.pods import direct_check
from controlplane.cluster.kubernetes.pods.deaths import death
from controlplane.cluster.kubernetes.pods.mounts import MountOptions, PodMounts, check_kept
from controlplane.cluster.kubernetes.pods.pods import Events, Pods
from controlplane.cluster.kubernetes.pods.podspec import MOST_AVOIDED, PodDefaults, pod, selector
from controlplane.cluster.kubernetes.pods.pulls import pulling
from controlplane.cluster.kubernetes.pods.ready_address import ReadyAddress
from controlplane.cluster.kubernetes.pods.removal import Removal
from controlplane.cluster.kubernetes.pods.scratch import Scratches
from controlplane.cluster.protocol import (
    Boot,
    Death,
    Description,
    ImageState,
    Observed,
    Placement,
    Pulling,
    SandboxNode,
    ScratchAt,
    Started,
)
from controlplane.errors import Problem
from controlplane.images import ImageConfig, PrivateRegistry
from controlplane.model import SandboxSpec
from controlplane.settings import BuildSettings, CommitSettings, KubernetesSettings, PushSettings, RegistrySettings

# A stop makes two calls, of which ``removal`` limits the concurrency, and then only waits for a kubelet.
MAX_STOPS: Final = 4096
# The weight of the node that is to be filled next. Schedulers round how full a node is to hundredths, and a small
# sandbox is less: by themselves they would begin on all nodes at once. A node that has the image may be preferred.
PACKS: Final = 20
_ID: Final = re.compile(r"sb-[a-z0-9]{1,60}")
# Kubelets renew these. Without the right to watch them, a node is lost when Kubernetes says so.
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_OURS: Final = (ANNOTATION_RECORD, ANNOTATION_START_BY, ANNOTATION_DATASETS)


class KubernetesCluster:
    """The pods of one installation in one namespace; ``podspec`` describes them.

    State is read from watches, which run in tasks that ``open`` owns; writes are calls to the API server.
    """

    def __init__(
        self,
        client: KubernetesClient,
        defaults: PodDefaults,
        fleet: Fleet,
        what: Description,
        *,
        required: str,
        per_node: int,
        forged: Callable[[], None],
        disagreed: Callable[[], None] = lambda: None,
        parts: NodeParts | None = None,
        commits: tuple[PrivateRegistry, PushSettings, CommitSettings] | None = None,
        cordon_drains: bool = False,
        may_come: Sequence[Node] = (),
        mountable: MountOptions = MountOptions(),  # noqa: B008 - it cannot change
        builds: BuildSettings | None = None,
        clock: Clock,
    ) -> None:
        self._client = client
        self._defaults = defaults
        self._fleet = fleet
        self._required = required
        self._may_come = may_come
        self._per_node = per_node
        self._clock = clock
        self._log = structlog.get_logger("kubernetes")
        self._agents = agents = None if parts is None else parts.agents
        self._near = NearNodes(agents, self._eligible, self._clock)
        self._ready = ReadyAddress(defaults.ready_url)
        self._rooms = NodeRooms(
            fleet,
            defaults.namespace,
            defaults.installation,
            disagreed,
            packs=bool(defaults.scheduler),
            claims=defaults.devices is not None,
        )
        self._devices = devices = None if defaults.devices is None else NodeDevices(defaults.devices)
        self._nodes = Nodes(self._lost, self._see, self._gone, (lambda one: one) if devices is None else devices.equip)
        if devices is not None:
            devices.listen(self._nodes.equip_again)
        self._node_summary = NodeSummary(fleet, lambda: self._nodes.all, may_come)
        self.names = Names(client, defaults.namespace, defaults.installation, defaults.dns_shards)
        self._pods = Pods(self._clock, self._nodes.trouble, forged, self.names.see)
        self._leases = NodeLeases(self._heard)
        self._draining = Draining(
            client, self._clock, fleet, self._pods.on_node, lambda: self._leases.silent, cordon_drains=cordon_drains
        )
        self._path = f"/api/v1/namespaces/{defaults.namespace}/pods"
        self._events = f"/api/v1/namespaces/{defaults.namespace}/events"
        self._mine = {"labelSelector": selector(defaults.installation)}
        self._removal = Removal(client, self._pods, self._path, self._events)
        node_of = self._pods.node_of
        scratches = Scratches(
            client,
            defaults.namespace,
            defaults.installation,
            mountable.scratch_class,
            self._pods.__contains__,
        )
        self.mounts = PodMounts(client, defaults.namespace, mountable, clock, scratches)
        self.lazy = None
        if defaults.lazy is not None:
            told = LazyNodes() if parts is None else parts.lazy
            self.lazy = LazyPulling(defaults.lazy, told, self._eligible, node_of, agents)
        self.node_images = self.node_stores = self.commits = self.builds = None
        if parts is not None:
            self.node_images = self.node_stores = NodeImages(
                parts.agents,
                parts.keyring,
                self._ready_nodes,
                self._near,
                handler=self._handler,
                needed=defaults.sidecar_image,
            )
        if parts is not None and commits is not None:
            self.commits = NodeCommits(client, parts.agents, *commits, pods=self._path, node_of=node_of, clock=clock)
        if self.commits is not None and commits is not None and builds is not None:
            registry, push, place = commits
            self.builds = PodBuilds(
                BuildPods(client, defaults, builds, clock),
                registry,
                place,
                place.authority_file or push.authority_file,
                architectures=self.architectures,
                cached=tuple(filter(None, dict(defaults.egress).get("EGRESS_PACKAGES", "").split(","))),
                clock=clock,
            )
        self._what = what if self.commits is None else replace(what, commits=self.commits.place)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: KubernetesSettings,
        registry: RegistrySettings | None = None,
        *,
        egress: tuple[tuple[str, str], ...] = (),
        forged: Callable[[], None] = lambda: None,
        disagreed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> AsyncIterator[Self]:
        """Opens a cluster; its watches run while the block does.

        Args:
            settings: the installation's.
            registry: the private registry; with node agents, images of sandboxes are put into it.
            egress: settings of each sidecar about egress; empty: it is not installed.
            forged: called for each sandbox whose pod has another address than its readiness push named.
            disagreed: called for each sandbox that came to a node which had no room for it, as it was known here.
            clock: the time of day; None: the machine's.

        Raises:
            Problem: isolation_missing, if there is no such RuntimeClass or no node has its runtime; internal, if the
                API server does not answer or refuses, or if there is no node for sandboxes.
        """
        defaults, clock = _defaults(settings, egress), clock or SystemClock()
        async with (
            KubernetesClient.connect(settings.kubeconfig, clock) as client,
            node_parts(
                client,
                settings.node_agents,
                settings.namespace,
                settings.image_pull_secrets,
                lazily=bool(settings.lazy_runtime_class),
            ) as parts,
        ):
            runtime = await isolation.runtime(client, settings.runtime_class)
            version = str((await client.get("/version")).get("gitVersion") or "")
            what = isolation.describe(version, settings.runtime_class, runtime.handler, settings.required_kernel)
            fleet = Fleet(
                {**runtime.selector, **settings.node_selector},
                # The API server adds the RuntimeClass's node selector and tolerations to every pod.
                (*settings.tolerations, *runtime.tolerations),
                runtime.handler,
                runtime.overhead,
            )
            pools = () if settings.scaling is None else settings.scaling.options.pools
            cluster = cls(
                client,
                replace(
                    defaults,
                    lazy=await _lazy_images(client, settings, registry),
                    devices=await _device_claims(client, settings),
                ),
                fleet,
                what,
                required=settings.required_kernel,
                per_node=settings.starts_per_node,
                forged=forged,
                disagreed=disagreed,
                parts=parts,
                commits=_commits(registry),
                cordon_drains=settings.cordon_drains,
                may_come=[of_pool(one, fleet.selector) for one in pools],
                mountable=MountOptions(settings.dataset_folders, settings.image_volumes, settings.scratch_class),
                builds=settings.builds,
                clock=clock,
            )
            keeping = nullcontext() if cluster.builds is None else cluster.builds.keeping()
            async with cluster._watching(), keeping:
                yield cluster

    def describe(self) -> Description:
        """See ``Sandboxes.describe``."""
        return self._what

    def check(self, spec: SandboxSpec) -> None:
        """See ``Sandboxes.check``; capacity_unavailable, when there is no node for sandboxes."""
        if self._devices is None:
            refuse_gpu(spec, "`gpu.deviceClass` in the values of the chart says which devices sandboxes get")
        else:
            self._devices.check(spec)
        isolation.check_pids(spec, self._what)
        self._node_summary.check(spec)
        lazy.check(self._defaults.lazy, spec, self._node_summary.eligible)

    @property
    def own_ports(self) -> frozenset[int]:
        """See ``Sandboxes.own_ports``."""
        return frozenset({SIDECAR_PORT})

    @property
    def stops_at_once(self) -> int:
        """See ``Sandboxes.stops_at_once``."""
        return MAX_STOPS

    @property
    def annotates_behind(self) -> bool:
        """See ``Sandboxes.annotates_behind``: writing facts is a call to the API server."""
        return True

    def check_kernel(self, kernel: str) -> None:
        """See ``Sandboxes.check_kernel``."""
        isolation.check_kernel(kernel, self._required)

    def starts_at_once(self) -> int:
        """See ``Placements.starts_at_once``."""
        return self._per_node * self._node_summary.ready

    @property
    def starts_per_node(self) -> int:
        """See ``Placements.starts_per_node``."""
        return self._per_node

    def placement(self, sandbox_id: str) -> Placement | None:
        """See ``Placements.placement``; known from the watch of the pods."""
        return self._pods.placement(sandbox_id)

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        """See ``Images.pulling``; the kubelet's events tell it."""
        if not (node := self._pods.node_of(sandbox_id)):
            return None
        told = await self._client.list(self._events, {"fieldSelector": f"involvedObject.name={sandbox_id}"})
        return pulling(node, told.items)

    def placements(self) -> AsyncIterator[Placement]:
        """See ``Placements.placements``."""
        return self._pods.placements()

    @property
    def node_drains(self) -> NodeDrains | None:
        """See ``Placements.node_drains``; known from the watch of the nodes."""
        return self._draining

    @property
    def room(self) -> Room | None:
        """See ``Placements.room``; known from the watches of the nodes and of the pods of all namespaces."""
        return self._rooms.room

    def request(self, spec: SandboxSpec) -> Amounts:
        """See ``Placements.request``."""
        return self._fleet.request(spec)

    async def image(self, name: str) -> ImageState:
        """See ``Images.image``: as the nodes report it, which tell only of their largest images."""
        return "here" if self._fleet.have(name, self._nodes.all) else "unknown"

    async def digest(self, name: str) -> str:
        """See ``Images.digest``: every node has images of its own."""
        del name
        return ""

    async def config(self, name: str) -> ImageConfig | None:
        """See ``Images.config``: of what was made here, the private registry has it."""
        return None if self.commits is None else await self.commits.kept.config(name)

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """See ``Placements.holding``; as agents and pods have told last."""
        return self._near.holding(spec, layers)

    def architectures(self) -> frozenset[str]:
        """See ``Images.architectures``."""
        return frozenset(one.architecture for one in self._node_summary.eligible if one.architecture)

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        """See ``Sandboxes.start``. Cost: one call to the API server; for a direct network one or two more."""
        await direct_check.check(self._client, self._defaults, spec.network)
        defaults = replace(self._defaults, ready_url=await self._ready.url())
        start_by_ms = boot.start_by_ms or self._clock.now_ms() + spec.start_timeout_ms
        lazily = None if self.lazy is None else self.lazy.chosen(spec)
        near = self._near.wishes(sandbox_id, spec, boot.layers, lazily=lazily is not None)
        off, confined = frozenset[str](), None
        if self.lazy is not None and lazily is not None:
            off, confined = self.lazy.kept_off(spec), self.lazy.confined(sandbox_id, spec)
        confined = lazy.kept_off(confined, self._rooms.room.without_slots()[:MOST_AVOIDED])
        if self._devices is not None and spec.gpu:
            confined = lazy.kept_off(confined, self._devices.unable(self._nodes.all)[:MOST_AVOIDED])
        if defaults.scheduler:
            towards = self._rooms.room.expected(sandbox_id, self.request(spec), spec.node_selector, {*boot.avoid, *off})
            near = (*near, *([(towards, PACKS)] if towards else []))
        manifest = pod(
            sandbox_id,
            spec,
            boot,
            defaults,
            start_by_ms,
            lazily=lazily,
            near=near,
            confined=confined,
        )
        # Retried until the create's deadline: an API server that is down may be back before that.
        within_s = self._left_s(start_by_ms)
        try:
            looked_at = bool(boot.mounts)
            made = await self._client.create(self._path, manifest, within_s=within_s, answered=looked_at)
            if looked_at:
                check_kept(boot.mounts, made)
                await self.mounts.scratches.made(made, boot.mounts, self._left_s(start_by_ms))
        except NotAskedError as late:
            detail = f"{sandbox_id} waited until its deadline for its turn to be sent to the cluster: {late.detail}"
            raise Problem("start_queue_timeout", detail, sandbox_id=sandbox_id) from late
        except Refused as refused:
            # Ids are never reused, so AlreadyExists is an earlier attempt of this create, whose answer was lost.
            if refused.refusal.reason != "AlreadyExists":
                raise
            await self._claimed(sandbox_id, boot, start_by_ms)
        return Started(None)

    async def _claimed(self, sandbox_id: str, boot: Boot, start_by_ms: int) -> None:
        """Makes the claims of a pod that an earlier attempt has made."""
        if any(isinstance(one, ScratchAt) for one in boot.mounts):
            there = await self._client.get(f"{self._path}/{sandbox_id}")
            await self.mounts.scratches.made(there, boot.mounts, self._left_s(start_by_ms))

    def _left_s(self, until_ms: int) -> float:
        return max(0.0, until_ms - self._clock.now_ms()) / 1000

    async def undo_start(self, sandbox_id: str) -> None:
        """See ``Sandboxes.undo_start``. Cost: three calls to the API server; while the kubelet hangs, three more."""
        await self._removal.undo(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        """See ``Sandboxes.stop``. Cost: two calls to the API server."""
        await self._removal.remove(sandbox_id)

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        """See ``Sandboxes.node_of``."""
        node = self._pods.node_of(sandbox_id)
        return SandboxNode(node, self._nodes.ready(node)) if node else None

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """See ``Sandboxes.cpu_us``; the agent of the sandbox's node tells it."""
        node = self._pods.node_of(sandbox_id)
        if self._agents is None or not self._agents.there(node):
            return None
        return await self._agents.cpu_us(node, sandbox_id)

    def node_ready(self, name: str) -> bool:
        """Whether a node is Ready, by the last event. Cost: no call."""
        return self._nodes.ready(name)

    def pushed(self, sandbox_id: str, address: str) -> None:
        """See ``Sandboxes.pushed``; compared as soon as the watch tells the pod's address."""
        self._pods.pushed(sandbox_id, address)

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """See ``Sandboxes.annotate``. Cost: one call to the API server."""
        annotations = {f"{DOMAIN}/{name.replace('_', '-')}": value for name, value in facts.items()}
        if "claim" in facts:
            annotations |= KEPT
        try:
            await self._client.patch(f"{self._path}/{sandbox_id}", {"metadata": {"annotations": annotations}})
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise

    async def list(self) -> Sequence[Observed]:
        """See ``Sandboxes.list``; read from the API server, page by page."""
        seen = await self._client.list(self._path, self._mine)
        return [self._observe(one) for one in seen.items if _ID.fullmatch(str(one["metadata"]["name"]))]

    def watch(self) -> AsyncIterator[Death]:
        """See ``Sandboxes.watch``."""
        return self._pods.deaths()

    def _eligible(self) -> Sequence[Node]:
        return self._node_summary.eligible

    def _handler(self, image: str) -> str:
        """By which runtime's handler nodes are to have an image."""
        lazily = None if self.lazy is None else self.lazy.chosen(SandboxSpec(image=image))
        return self._fleet.handler if lazily is None else lazily.handler

    def _ready_nodes(self) -> Sequence[str]:
        return [one.name for one in self._eligible() if one.ready == "True"]

    def _lost(self, node: str) -> None:
        self._pods.lost(node)

    def _see(self, node: Node) -> None:
        self._rooms.see(node, silent=node.name in self._leases.silent)
        self._draining.see(node)

    def _heard(self, name: str) -> None:
        """A node has fallen silent, or is not silent any more."""
        if (node := self._nodes.get(name)) is not None:
            self._see(node)

    def _gone(self, node: str) -> None:
        self._rooms.room.drop_node(node)
        self._draining.drop(node)

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        reflectors = self._reflectors()
        for one in reflectors:
            await one.first()
        everywhere = Reflector(
            self._client,
            "/api/v1/pods",
            self._rooms.elsewhere,
            self._rooms.pods,
            keep=self._rooms.slim,
            denied=self._rooms.room.forget,
        )
        await self._first_room(everywhere)
        leases = Reflector(self._client, LEASES, {}, self._leases)
        if not self._may_come:
            isolation.check_nodes(self._fleet, self._nodes.all)
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(one.run(), name="kubernetes watch") for one in (*reflectors, everywhere, leases)]
            loops.append(group.create_task(self._leases.run(), name="leases of nodes"))
            loops.append(group.create_task(self._near.run(), name="images of nodes"))
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                self._nodes.close()
                self._pods.close()

    async def _first_room(self, everywhere: Reflector) -> None:
        """Without the right to list all pods sandboxes start all the same; what is free is not known then."""
        try:
            await everywhere.first()
        except Refused as refused:
            self._log.warning("what is free on the nodes is not known: pods cannot be listed", detail=refused.detail)

    def _reflectors(self) -> Sequence[Reflector]:
        """The watches; nodes and what they have come first, since the state of a node decides about its pods."""
        return (
            *self._device_reflectors(),
            Reflector(self._client, "/api/v1/nodes", {}, self._nodes),
            Reflector(self._client, self._path, {}, self._rooms.beside(self._near.beside(self._pods))),
            Reflector(self._client, self._events, _told("FailedCreatePodSandBox"), Events(self._pods.no_sandbox)),
            Reflector(self._client, self._events, _told("FailedMount"), Events(self._pods.not_mounted)),
            Reflector(self._client, self._events, _told("Evicted"), Events(self._pods.evicted)),
        )

    def _device_reflectors(self) -> Sequence[Reflector]:
        """Those of devices: the class, what nodes have, and what others than sandboxes hold."""
        devices, given = self._devices, self._defaults.devices
        if devices is None or given is None:
            return ()
        named = {"fieldSelector": f"metadata.name={given.device_class}"}
        elsewhere = {"fieldSelector": f"metadata.namespace!={self._defaults.namespace}"}
        unprepared = Events(self._pods.no_sandbox)
        return (
            Reflector(self._client, f"{DEVICES}/deviceclasses", named, devices.classes),
            Reflector(self._client, f"{DEVICES}/resourceslices", {}, devices.slices),
            Reflector(self._client, f"{DEVICES}/resourceclaims", elsewhere, devices.claims),
            # What a driver cannot prepare, the kubelet tries again; no container is made meanwhile.
            Reflector(self._client, self._events, _told("FailedPrepareDynamicResources"), unprepared),
        )

    def _observe(self, seen: Json) -> Observed:
        about, status = seen["metadata"], seen.get("status") or {}
        annotations = about.get("annotations") or {}
        facts = {
            name.removeprefix(f"{DOMAIN}/").replace("-", "_"): str(value)
            for name, value in annotations.items()
            if name.startswith(f"{DOMAIN}/") and name not in _OURS
        }
        node = str((seen.get("spec") or {}).get("nodeName") or "")
        return Observed(
            sandbox_id=str(about["name"]),
            record=str(annotations.get(ANNOTATION_RECORD) or ""),
            facts=facts,
            address=f"http://{status['podIP']}:{SIDECAR_PORT}" if status.get("podIP") else None,
            # If the watch has seen the pod's end and still waits for its reason, the watch reports the death later.
            death=None if self._pods.is_unconfirmed(str(about["name"])) else death(seen, self._nodes.trouble(node)),
        )


def _told(reason: str) -> dict[str, str]:
    """Of the kubelets' events those about pods with this reason."""
    return {"fieldSelector": f"reason={reason},involvedObject.kind=Pod"}


def _defaults(settings: KubernetesSettings, egress: tuple[tuple[str, str], ...]) -> PodDefaults:
    return PodDefaults(
        namespace=settings.namespace,
        installation=settings.installation,
        sidecar_image=settings.sidecar_image,
        ready_url=settings.ready_url,
        runtime_class=settings.runtime_class,
        dns_shards=settings.dns_shards,
        priority_class=settings.priority_class,
        scheduler=settings.scheduler,
        egress=egress,
        networks=settings.networks,
        node_selector=settings.node_selector,
        tolerations=settings.tolerations,
        image_pull_secrets=settings.image_pull_secrets,
        commands_in_sidecar=settings.required_kernel.lower() == isolation.ANY,
        pids_limit=isolation.pids_limit(settings.required_kernel),
    )


def _commits(registry: RegistrySettings | None) -> tuple[PrivateRegistry, PushSettings, CommitSettings] | None:
    """Where images of sandboxes are put; None: nowhere."""
    if registry is None or (push := registry.push) is None or push.commits is None:
        return None
    return PrivateRegistry(registry.host), push, push.commits


async def _lazy_images(
    client: KubernetesClient, settings: KubernetesSettings, registry: RegistrySettings | None
) -> LazyImages | None:
    if not settings.lazy_runtime_class:
        return None
    lazily = await isolation.runtime(client, settings.lazy_runtime_class)
    converted = "" if registry is None else PrivateRegistry(registry.host).converted
    names, own = settings.lazy_images, settings.devices is not None and bool(settings.devices.runtime_class)
    return LazyImages(settings.lazy_runtime_class, lazily.handler, names, lazily.selector, converted, devices=not own)


async def _device_claims(client: KubernetesClient, settings: KubernetesSettings) -> DeviceClaims | None:
    """How sandboxes get devices; None: they get none.

    Raises:
        Problem: isolation_missing, if there is no such RuntimeClass; internal, if the API server knows no devices.
    """
    if (told := settings.devices) is None:
        return None
    try:
        await client.get(DEVICES)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        detail = "gpu.deviceClass needs resource.k8s.io/v1 (Kubernetes 1.34), which this API server does not serve"
        raise Problem("internal", detail) from refused
    handler = (await isolation.runtime(client, told.runtime_class)).handler if told.runtime_class else ""
    return DeviceClaims(told.device_class, told.claim_template, told.runtime_class, handler)
