"""``EngineCluster``: the cluster protocol on a Docker Engine API."""

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import structlog

from controlplane.clock import Clock, SystemClock
from controlplane.cluster.engine import cdi, network_files
from controlplane.cluster.engine import facts as fact_files
from controlplane.cluster.engine.build import Builds
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit import Commits, place_of
from controlplane.cluster.engine.containers import (
    LABEL_INSTALLATION,
    SIDECAR,
    TARGET,
    Body,
    Host,
    Image,
    devices_of,
    name,
    records_of,
    sidecar_body,
    target_body,
)
from controlplane.cluster.engine.deaths import Inspection, death, gave_up, last_words
from controlplane.cluster.engine.devices import Devices
from controlplane.cluster.engine.images import NODE, Images
from controlplane.cluster.engine.live_sandboxes import LiveSandboxes
from controlplane.cluster.engine.machine import Machine
from controlplane.cluster.engine.mounts import EngineMounts, in_the_way
from controlplane.cluster.engine.watch import Watch
from controlplane.cluster.finish import finish
from controlplane.cluster.one_machine import OneMachine
from controlplane.cluster.protocol import (
    Boot,
    Bound,
    Death,
    Description,
    ImageState,
    Observed,
    Pulling,
    SandboxNode,
    Started,
)
from controlplane.errors import Problem
from controlplane.images import ImageConfig
from controlplane.model import SandboxSpec

# The sidecar is removed first: it uses the target's namespaces, and Podman refuses to remove a container on which
# another one depends.
_REMOVAL_ORDER: Final = (SIDECAR, TARGET)


# Measured: deleting hundreds at once overloads a machine for minutes; 8 at once are enough to keep it busy.
MAX_STOPS: Final = 8


class EngineCluster(OneMachine):
    """Runs each sandbox as two containers on one engine; ``containers`` describes them.

    Its images are those of its machine's users, too, so none is removed; it fetches them whole; gateway and sandboxes
    are on one machine, so sandboxes need no names.
    """

    node_stores: None = None
    lazy: None = None
    names: None = None
    stops_at_once: int = MAX_STOPS
    # Facts are in a local file, which is fast to write.
    annotates_behind: bool = False
    # Sidecars listen on sockets.
    own_ports: frozenset[int] = frozenset()

    def __init__(
        self,
        client: EngineClient,
        images: Images,
        host: Host,
        machine: Machine,
        clock: Clock,
        *,
        folders: Collection[str] = (),
        devices: Devices,
    ) -> None:
        self._client = client
        self._clock = clock
        self._images = images
        self._host = host
        self._machine = machine
        self._devices = devices
        place = place_of(host.installation)
        self._what = replace(machine.description, commits=place)
        self._live = LiveSandboxes()
        self._pulling: dict[str, Pulling] = {}
        self.node_images = images
        self.commits = Commits(client, place, clock)
        self.mounts = EngineMounts(client, host.installation, folders, machine.memory_bytes)
        self.builds = Builds(client, images, host, machine)

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
        folders: Collection[str] = (),
        gpu_devices: str = "",
        clock: Clock | None = None,
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
            folders: of this machine, that data sets may be.
            gpu_devices: the CDI kind of the devices that sandboxes with `gpu` get; empty: none.
            clock: the time of day; None: the machine's.

        Raises:
            Problem: internal, when the engine does not answer; unsupported, when it cannot limit what sandboxes use, or
                there are no such devices.
        """
        (state_dir / "sandboxes").mkdir(mode=0o700, parents=True, exist_ok=True)
        clock = clock or SystemClock()
        devices = _devices(gpu_devices)
        async with EngineClient.connect(engine_url) as client:
            machine = Machine.of(await client.call("GET", "info"), await client.call("GET", "version"))
            installation = hashlib.sha256(str(state_dir).encode()).hexdigest()[:16]
            images = Images(client, machine.architecture, place_of(installation), clock)
            host = Host(
                state_dir=state_dir,
                ready_socket=ready_socket,
                target_binary=target_binary,
                sidecar_image=await images.sidecar(sidecar_binary),
                installation=installation,
                egress=egress,
                is_docker=machine.is_docker,
            )
            cluster = cls(client, images, host, machine, clock, folders=folders, devices=devices)
            # What a crash has left.
            await cluster.mounts.sweep()
            await cluster.builds.sweep()
            try:
                yield cluster
            finally:
                await cluster.commits.close()

    def describe(self) -> Description:
        """See ``Sandboxes.describe``."""
        return self._what

    def check(self, spec: SandboxSpec) -> None:
        """See ``Sandboxes.check``."""
        self._machine.check(spec, len(self._devices))

    def check_kernel(self, kernel: str) -> None:
        """See ``Sandboxes.check_kernel``: nothing to check, an engine is expected to use the runtime that it names."""

    async def image(self, name: str) -> ImageState:
        """See ``Images.image``; Podman cannot query a registry without pulling."""
        return await self._images.find(name, ask_registry=self._machine.is_docker)

    async def digest(self, name: str) -> str:
        """See ``Images.digest``: the id that the engine gives to an image's content."""
        local = await self._images.local(name)
        return "" if local is None else local.digest

    async def config(self, name: str) -> ImageConfig | None:
        """See ``Images.config``."""
        return await self._images.config(name)

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        """See ``Images.pulling``."""
        return self._pulling.get(sandbox_id)

    def architectures(self) -> frozenset[str]:
        """See ``Images.architectures``."""
        return frozenset({self._machine.architecture} - {""})

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        """See ``Sandboxes.start``."""
        devices = self._devices.take(sandbox_id, spec.gpu)
        image, timings_ms = await self._image(sandbox_id, spec.image)
        self._images.used(image)
        self._host.agent_dir(sandbox_id).mkdir(mode=0o700, exist_ok=True)
        network_files.write(self._host.names_dir(sandbox_id), sandbox_id)
        target = target_body(sandbox_id, spec, boot, self._host, image, devices=devices)
        sidecar = sidecar_body(sandbox_id, spec, boot, self._host, devices)
        with self._live.starting(sandbox_id):
            await finish(asyncio.create_task(self._run(sandbox_id, target, sidecar, boot.mounts)))
        if self._live.take_unconfirmed(sandbox_id) and (dead := await self._judge(sandbox_id)) is not None:
            raise Problem(dead.cause, dead.detail)
        return Started(self._host.address(sandbox_id), timings_ms)

    async def undo_start(self, sandbox_id: str) -> None:
        """See ``Sandboxes.undo_start``."""
        await self.stop(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        """See ``Sandboxes.stop``."""
        self._live.discard(sandbox_id)
        await finish(asyncio.create_task(self._remove(sandbox_id)))

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        """See ``Sandboxes.node_of``: all are on this machine."""
        del sandbox_id
        return SandboxNode(NODE, ready=True)

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """See ``Sandboxes.cpu_us``: sidecars read it themselves, since they share this machine's kernel."""
        del sandbox_id
        return None

    def pushed(self, sandbox_id: str, address: str) -> None:
        """See ``Sandboxes.pushed``: does nothing, since the address is this machine's word and not the push's."""

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """See ``Sandboxes.annotate``."""
        fact_files.add(self._host.facts_file(sandbox_id), facts)

    async def list(self) -> Sequence[Observed]:
        """See ``Sandboxes.list``."""
        filters = json.dumps({"label": [f"{LABEL_INSTALLATION}={self._host.installation}"]})
        containers = await self._client.call("GET", "containers/json", {"all": True, "filters": filters}) or []
        labels = [one.get("Labels") or {} for one in containers]
        records = records_of(labels)
        self._devices.adopt(devices_of(labels))
        async with asyncio.TaskGroup() as group:
            # All at once: the client does not limit its connections.
            looks = [group.create_task(self._observe(sandbox_id, record)) for sandbox_id, record in records.items()]
        return [look.result() for look in looks]

    def watch(self) -> AsyncIterator[Death]:
        """See ``Sandboxes.watch``."""
        return Watch(self._client, self._host.installation, self._judge, self._live).deaths()

    async def _image(self, sandbox_id: str, image: str) -> tuple[Image, dict[str, int]]:
        if present := await self._images.local(image):
            return present, {}
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        self._pulling[sandbox_id] = Pulling(NODE, image, self._clock.now_ms())
        try:
            pulled = await self._images.pull(image)
        finally:
            self._pulling.pop(sandbox_id, None)
        return pulled, {"pull": round((now_s() - began_s) * 1000)}

    async def _run(self, sandbox_id: str, target: Body, sidecar: Body, bound: Sequence[Bound]) -> None:
        async with self.mounts.made(bound):
            await self._create(name(sandbox_id, TARGET), target)
        # The sidecar can be created while the target starts; its start needs the target's namespaces.
        outcomes = await asyncio.gather(
            self._start(name(sandbox_id, TARGET)),
            self._create(name(sandbox_id, SIDECAR), sidecar),
            return_exceptions=True,
        )
        for failure in filter(None, outcomes):
            raise in_the_way(failure, bound) if isinstance(failure, Problem) else failure
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
        self._devices.release(sandbox_id)
        for folder in (self._host.agent_dir(sandbox_id), self._host.names_dir(sandbox_id)):
            await self._remove_files(folder)
        self._host.facts_file(sandbox_id).unlink(missing_ok=True)
        await self.mounts.sweep()
        await self.builds.sweep()

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
            await self.commits.let_go_on(sandbox_id, seen[SIDECAR])
        known = fact_files.read(self._host.facts_file(sandbox_id))
        return Observed(sandbox_id, record, known, self._host.address(sandbox_id), dead)


def _devices(kind: str) -> Devices:
    if not kind:
        return Devices()
    try:
        return Devices(kind, cdi.devices(kind, cdi.read()))
    except cdi.SpecificationError as error:
        raise Problem("unsupported", str(error), option="gpu-devices") from error
