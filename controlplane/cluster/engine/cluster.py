"""``EngineCluster``: the cluster protocol on a Docker Engine API."""

import asyncio
import hashlib
import json
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import structlog

from controlplane.capacity import NOTHING, Amounts, Room
from controlplane.cluster.drains import NodeDrains
from controlplane.cluster.engine import facts as fact_files
from controlplane.cluster.engine import network_files
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit import Commits, KeptImages, place_of
from controlplane.cluster.engine.containers import (
    LABEL_INSTALLATION,
    SIDECAR,
    TARGET,
    Body,
    Host,
    Image,
    name,
    records_of,
    sidecar_body,
    target_body,
)
from controlplane.cluster.engine.deaths import Inspection, death, gave_up, last_words
from controlplane.cluster.engine.images import NODE, Images
from controlplane.cluster.engine.live_sandboxes import LiveSandboxes
from controlplane.cluster.engine.machine import Machine
from controlplane.cluster.engine.watch import Watch
from controlplane.cluster.finish import finish
from controlplane.cluster.protocol import (
    NO_LAYERS,
    Boot,
    Committed,
    CommittedImage,
    Death,
    Description,
    ImageState,
    NodeImage,
    NodeStore,
    Observed,
    OpenedFiles,
    Placement,
    PrefetchProgress,
    Pulling,
    SandboxNode,
    Started,
)
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

# The sidecar is removed first: it uses the target's namespaces, and Podman refuses to remove a container on which
# another one depends.
_REMOVAL_ORDER: Final = (SIDECAR, TARGET)


MAX_STARTS: Final = 1024
# Measured: deleting hundreds at once overloads a machine for minutes; 8 at once are enough to keep it busy.
MAX_STOPS: Final = 8


class EngineCluster:
    """Runs each sandbox as two containers on one engine; ``containers`` describes them."""

    def __init__(self, client: EngineClient, images: Images, host: Host, machine: Machine) -> None:
        self._client = client
        self._images = images
        self._host = host
        self._machine = machine
        self._what = replace(machine.description, commits=place_of(host.installation))
        self._live = LiveSandboxes()
        self._pulling: dict[str, Pulling] = {}
        self._commits = Commits(client)
        self._kept = KeptImages(client)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        engine_url: str,
        state_dir: Path,
        ready_socket: str,
        sidecar_binary: Path,
        target_binary: Path,
        egress: tuple[tuple[str, str], ...] = (),
    ) -> AsyncIterator[Self]:
        """A cluster on the engine at ``engine_url``; builds the sidecar's image if the engine lacks it.

        Args:
            engine_url: ``unix:///path``; an engine on another machine does not work, since containers mount local
                files.
            state_dir: absolute; its hash identifies the installation's containers among those of others.
            ready_socket: file name of the readiness socket in ``state_dir/ready``.
            sidecar_binary: the content of the sidecar's image.
            target_binary: mounted into every target.
            egress: settings of each sidecar about egress; empty: it is not installed.

        Raises:
            Problem: internal, when the engine does not answer; unsupported, when it cannot limit what sandboxes use.
        """
        (state_dir / "sandboxes").mkdir(mode=0o700, parents=True, exist_ok=True)
        async with EngineClient.connect(engine_url) as client:
            machine = Machine.of(await client.call("GET", "info"), await client.call("GET", "version"))
            installation = hashlib.sha256(str(state_dir).encode()).hexdigest()[:16]
            images = Images(client, machine.architecture, place_of(installation))
            host = Host(
                state_dir=state_dir,
                ready_socket=ready_socket,
                target_binary=target_binary,
                sidecar_image=await images.sidecar(sidecar_binary),
                installation=installation,
                egress=egress,
                is_docker=machine.is_docker,
            )
            cluster = cls(client, images, host, machine)
            try:
                yield cluster
            finally:
                await cluster._commits.close()

    def describe(self) -> Description:
        """See ``Cluster.describe``."""
        return self._what

    def check(self, spec: SandboxSpec) -> None:
        """See ``Cluster.check``."""
        self._machine.check(spec)

    @property
    def own_ports(self) -> frozenset[int]:
        """See ``Cluster.own_ports``: it listens on a socket."""
        return frozenset()

    @property
    def stops_at_once(self) -> int:
        """See ``Cluster.stops_at_once``."""
        return MAX_STOPS

    @property
    def names(self) -> None:
        """See ``Cluster.names``: gateway and sandboxes are on one machine."""

    @property
    def annotates_behind(self) -> bool:
        """See ``Cluster.annotates_behind``: on an engine facts are in a local file, which is fast to write."""
        return False

    def check_kernel(self, kernel: str) -> None:
        """See ``Cluster.check_kernel``: nothing to check, an engine is expected to use the runtime that it names."""

    def starts_at_once(self) -> int:
        """See ``Cluster.starts_at_once``: only the setting ``STARTS_IN_FLIGHT`` limits it."""
        return MAX_STARTS

    @property
    def starts_per_node(self) -> int:
        """See ``Cluster.starts_per_node``: one machine."""
        return 0

    def placement(self, sandbox_id: str) -> Placement | None:
        """See ``Cluster.placement``: every sandbox is on this machine."""
        del sandbox_id
        return None

    async def placements(self) -> AsyncIterator[Placement]:
        """See ``Cluster.placements``: there are none."""
        await asyncio.get_running_loop().create_future()
        yield Placement("", "")

    @property
    def node_drains(self) -> NodeDrains | None:
        """See ``Cluster.node_drains``: one machine."""
        return None

    @property
    def room(self) -> Room | None:
        """See ``Cluster.room``: an engine sets nothing aside, so what is free is not known."""
        return None

    def request(self, spec: SandboxSpec) -> Amounts:
        """See ``Cluster.request``."""
        del spec
        return NOTHING

    async def image(self, name: str) -> ImageState:
        """See ``Cluster.image``; Podman cannot query a registry without pulling."""
        return await self._images.find(name, ask_registry=self._machine.is_docker)

    async def digest(self, name: str) -> str:
        """See ``Cluster.digest``: the id that the engine gives to an image's content."""
        local = await self._images.local(name)
        return "" if local is None else local.digest

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        """See ``Cluster.pulling``."""
        return self._pulling.get(sandbox_id)

    async def images(self) -> Sequence[NodeImage]:
        """See ``Cluster.images``."""
        return await self._images.all()

    async def node_stores(self) -> Sequence[NodeStore]:
        """See ``Cluster.node_stores``: an engine's images are those of its machine's users, too."""
        return ()

    async def remove_image(self, image: NodeImage) -> bool:
        """See ``Cluster.remove_image``: none is."""
        raise Problem("conflict", f"{image.names[0]} may be needed by another user of this machine's engine")

    def check_prefetch(self) -> None:
        """See ``Cluster.check_prefetch``: an engine does."""

    def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """See ``Cluster.prefetch``; there is one machine, so any number of nodes is that one."""
        del nodes, layers
        return self._images.prefetch(name)

    @property
    def commits(self) -> str:
        """See ``Cluster.commits``."""
        return self._what.commits

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        """See ``Cluster.commit``; at most two at once, further ones wait."""
        return await self._commits.commit(sandbox_id, target, max_bytes, squash=squash)

    async def committed_digest(self, name: str) -> str:
        """See ``Cluster.committed_digest``."""
        return await self._kept.digest(name)

    def lazily(self, spec: SandboxSpec) -> bool:
        """See ``Cluster.lazily``: an engine fetches images whole."""
        del spec
        return False

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """See ``Cluster.holding``: an engine is one machine."""
        del spec, layers
        return ()

    def kept_off(self, spec: SandboxSpec, *, lazily: bool) -> frozenset[str]:
        """See ``Cluster.kept_off``: an engine is one machine."""
        del spec, lazily
        return frozenset()

    def lazy_trouble(self) -> str:
        """See ``Cluster.lazy_trouble``: an engine fetches images whole."""
        return ""

    def broken(self, digest: str) -> str:
        """See ``Cluster.broken``: an engine fetches images whole."""
        del digest
        return ""

    def check_record(self) -> None:
        """See ``Cluster.check_record``: an engine fetches images whole."""
        raise Problem("unsupported", "an engine fetches images whole, so nothing is recorded", option="record")

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """See ``Cluster.opened``: not offered."""
        del sandbox_id, during
        self.check_record()
        return OpenedFiles()

    async def committed_images(self, folder: str) -> Sequence[CommittedImage]:
        """See ``Cluster.committed_images``."""
        return await self._kept.below(folder)

    async def expired_checkpoints(self, before_ms: int) -> Sequence[CommittedImage]:
        """See ``Cluster.expired_checkpoints``."""
        return await self._kept.expired(before_ms)

    async def remove_committed(self, image: CommittedImage) -> None:
        """See ``Cluster.remove_committed``."""
        await self._kept.remove(image)

    def architectures(self) -> frozenset[str]:
        """See ``Cluster.architectures``."""
        return frozenset({self._machine.architecture} - {""})

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        """See ``Cluster.start``."""
        image, timings_ms = await self._image(sandbox_id, spec.image)
        self._images.used(image)
        self._host.agent_dir(sandbox_id).mkdir(mode=0o700, exist_ok=True)
        network_files.write(self._host.names_dir(sandbox_id), sandbox_id)
        target = target_body(sandbox_id, spec, boot, self._host, image)
        sidecar = sidecar_body(sandbox_id, spec, boot, self._host)
        with self._live.starting(sandbox_id):
            await finish(asyncio.create_task(self._run(sandbox_id, target, sidecar)))
        if self._live.take_unconfirmed(sandbox_id) and (dead := await self._judge(sandbox_id)) is not None:
            raise Problem(dead.cause, dead.detail)
        return Started(self._host.address(sandbox_id), timings_ms)

    async def undo_start(self, sandbox_id: str) -> None:
        """See ``Cluster.undo_start``."""
        await self.stop(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        """See ``Cluster.stop``."""
        self._live.discard(sandbox_id)
        await finish(asyncio.create_task(self._remove(sandbox_id)))

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        """See ``Cluster.node_of``: all are on this machine."""
        del sandbox_id
        return SandboxNode(NODE, ready=True)

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """See ``Cluster.cpu_us``: sidecars read it themselves, since they share this machine's kernel."""
        del sandbox_id
        return None

    def pushed(self, sandbox_id: str, address: str) -> None:
        """See ``Cluster.pushed``: does nothing, since the address is this machine's word and not the push's."""

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """See ``Cluster.annotate``."""
        fact_files.add(self._host.facts_file(sandbox_id), facts)

    async def list(self) -> Sequence[Observed]:
        """See ``Cluster.list``."""
        filters = json.dumps({"label": [f"{LABEL_INSTALLATION}={self._host.installation}"]})
        containers = await self._client.call("GET", "containers/json", {"all": True, "filters": filters}) or []
        records = records_of([one.get("Labels") or {} for one in containers])
        async with asyncio.TaskGroup() as group:
            # All at once: the client does not limit its connections.
            looks = [group.create_task(self._observe(sandbox_id, record)) for sandbox_id, record in records.items()]
        return [look.result() for look in looks]

    def watch(self) -> AsyncIterator[Death]:
        """See ``Cluster.watch``."""
        return Watch(self._client, self._host.installation, self._judge, self._live).deaths()

    async def _image(self, sandbox_id: str, image: str) -> tuple[Image, dict[str, int]]:
        if present := await self._images.local(image):
            return present, {}
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        self._pulling[sandbox_id] = Pulling(NODE, image, round(time.time() * 1000))
        try:
            pulled = await self._images.pull(image)
        finally:
            self._pulling.pop(sandbox_id, None)
        return pulled, {"pull": round((now_s() - began_s) * 1000)}

    async def _run(self, sandbox_id: str, target: Body, sidecar: Body) -> None:
        await self._create(name(sandbox_id, TARGET), target)
        # The sidecar can be created while the target starts; its start needs the target's namespaces.
        outcomes = await asyncio.gather(
            self._start(name(sandbox_id, TARGET)),
            self._create(name(sandbox_id, SIDECAR), sidecar),
            return_exceptions=True,
        )
        for failure in filter(None, outcomes):
            raise failure
        await self._start(name(sandbox_id, SIDECAR))

    async def _create(self, container: str, body: Body) -> None:
        await self._client.call("POST", "containers/create", {"name": container}, body)

    async def _start(self, container: str) -> None:
        await self._client.call("POST", f"containers/{container}/start")

    async def _remove(self, sandbox_id: str) -> None:
        for role in _REMOVAL_ORDER:
            try:
                await self._client.call("DELETE", f"containers/{name(sandbox_id, role)}", {"force": True, "v": True})
            except Missing:
                continue
        for folder in (self._host.agent_dir(sandbox_id), self._host.names_dir(sandbox_id)):
            await self._remove_files(folder)
        self._host.facts_file(sandbox_id).unlink(missing_ok=True)

    async def _remove_files(self, folder: Path) -> None:
        # In a thread: the folder of a sandbox that has written much there would hold all calls up.
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            structlog.get_logger("engine").warning(
                "the folder of a removed sandbox is left", folder=str(folder), error=str(error)
            )

    async def _seen(self, sandbox_id: str) -> dict[str, Inspection | None]:
        return {role: await self._inspect(name(sandbox_id, role)) for role in (TARGET, SIDECAR)}

    async def _judge(self, sandbox_id: str) -> Death | None:
        return await self._judged(sandbox_id, await self._seen(sandbox_id))

    async def _judged(self, sandbox_id: str, seen: Mapping[str, Inspection | None]) -> Death | None:
        dead = death(sandbox_id, seen)
        if dead is None or not gave_up(seen[SIDECAR]):
            return dead
        # Only the sidecar's log is read: the target's output is the user's.
        words = await self._last_words(name(sandbox_id, SIDECAR))
        return replace(dead, detail=f"{dead.detail}; the sidecar's last words: {words}") if words else dead

    async def _last_words(self, container: str) -> str:
        try:
            tail = {"stdout": True, "stderr": True, "tail": 5}
            return last_words(await self._client.read(f"containers/{container}/logs", tail))
        except Problem:
            return ""

    async def _inspect(self, container: str) -> Inspection | None:
        try:
            seen: Inspection = await self._client.call("GET", f"containers/{container}/json")
        except Missing:
            return None
        return seen

    async def _observe(self, sandbox_id: str, record: str) -> Observed:
        seen = await self._seen(sandbox_id)
        dead = await self._judged(sandbox_id, seen)
        if dead is None:
            self._live.add(sandbox_id)
            await self._commits.let_go_on(sandbox_id, seen[SIDECAR])
        known = fact_files.read(self._host.facts_file(sandbox_id))
        return Observed(sandbox_id, record, known, self._host.address(sandbox_id), dead)
