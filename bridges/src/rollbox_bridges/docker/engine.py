"""What all calls of a bridge work on, and what the engine says of itself."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from rollbox import Client
from rollbox_bridges.docker import described
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.containers import Containers
from rollbox_bridges.docker.execs import Execs
from rollbox_bridges.docker.images import Images
from rollbox_bridges.docker.settings import Settings
from rollbox_bridges.docker.words import Refusal

# As many as the platform builds at once.
_MOST_BUILDS: Final = 4
_NETWORKS: Final = {"bridge": "what the installation or --egress allows", "none": "nothing"}
# By what networks are looked for, and what the two have of it: neither a client's labels, nor one that is a client's.
_FILTERED: Final[Mapping[str, Callable[[Mapping[str, Any]], set[str]]]] = {
    "name": lambda one: {one["Name"]},
    "id": lambda one: {one["Id"]},
    "driver": lambda one: {one["Driver"]},
    "type": lambda _: {"builtin"},
    "label": lambda _: set(),
}


class Engine:
    """One bridge: one owner's containers, execs and images.

    Args:
        settings: of it.

    Raises:
        SandboxError: there is no gateway or no key.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client = Client(settings.url)
        self.containers = Containers(self.client, settings)
        self.execs = Execs()
        self.images = Images(self.client)
        # Each has its context in a folder of this machine.
        self.build_places = asyncio.Semaphore(_MOST_BUILDS)

    async def aclose(self) -> None:
        """End all containers."""
        await self.containers.aclose()
        await self.client.aclose()


async def ping(request: web.BaseRequest, _: Engine) -> web.StreamResponse:
    """Say that the bridge is there; whether the platform is, /info says."""
    body = b"OK" if request.method == "GET" else b""
    headers = {"Ostype": "linux", "Docker-Experimental": "false", "Builder-Version": "1", "Cache-Control": "no-cache"}
    return web.Response(body=body, headers=headers, content_type="text/plain")


async def version(_: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Say which versions there are."""
    return web.json_response(described.version(str((await engine.client.info()).get("version", ""))))


async def info(_: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Say what there is."""
    told = await engine.client.info()
    states = [one.state for one in engine.containers.listed(ended=True, filters={})]
    running = states.count("running")
    body: dict[str, Any] = {
        "ID": "rollbox",
        "Name": platform.node(),
        "ServerVersion": str(told.get("version", "")),
        "OperatingSystem": "rollbox",
        "OSType": "linux",
        "Architecture": "x86_64",
        "Driver": "rollbox",
        "Containers": len(states),
        "ContainersRunning": running,
        "ContainersPaused": 0,
        "ContainersStopped": len(states) - running,
        "Images": 0,
        "NCPU": 0,
        "MemTotal": 0,
        "MemoryLimit": True,
        "PidsLimit": True,
        "SwapLimit": False,
        "DefaultRuntime": str(told.get("isolation", "")) or "rollbox",
        "Runtimes": {},
        "Plugins": {"Volume": [], "Network": list(_NETWORKS), "Authorization": None, "Log": ["json-file"]},
        "SecurityOptions": [],
        "Warnings": [],
        "Labels": [],
        "IndexServerAddress": "https://index.docker.io/v1/",
        "RegistryConfig": {"IndexConfigs": {}, "InsecureRegistryCIDRs": [], "Mirrors": []},
        "Swarm": {"LocalNodeState": "inactive"},
        "Rollbox": {key: told[key] for key in sorted(told) if isinstance(told[key], str | int | bool)},
    }
    return web.json_response(body)


async def networks(request: web.BaseRequest, _: Engine) -> web.StreamResponse:
    """List the two networks that there are."""
    wanted = Query(request, frozenset({"filters"})).filters(frozenset(_FILTERED))
    return web.json_response([one for one in map(_network, _NETWORKS) if _passes(one, wanted)])


async def network(_: web.BaseRequest, __: Engine, name: str) -> web.StreamResponse:
    """Tell of one network."""
    if name not in _NETWORKS:
        raise Refusal(404, f"network {name[:200]} not found: there are {' and '.join(_NETWORKS)}")
    return web.json_response(_network(name))


async def volumes(_: web.BaseRequest, __: Engine) -> web.StreamResponse:
    """List the volumes: there are none."""
    return web.json_response({"Volumes": [], "Warnings": []})


def _passes(network: dict[str, Any], wanted: Mapping[str, Sequence[str]]) -> bool:
    return all(_FILTERED[name](network) & {*values} for name, values in wanted.items() if values)


def _network(name: str) -> dict[str, Any]:
    return {
        "Name": name,
        "Id": name,
        "Scope": "local",
        "Driver": name if name != "none" else "null",
        "Internal": name == "none",
        "Containers": {},
        "Options": {},
        "Labels": {"reaches": _NETWORKS[name]},
    }
