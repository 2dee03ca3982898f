"""A driver of devices for the node of `make cluster`, by dynamic resource allocation (DRA), as GPUs have one.

It registers with the kubelet, publishes the devices of the node, and prepares claims: what a container gets of a device
is a CDI specification's, which containerd reads. The devices are no GPUs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from tests.cluster.layout import KUBELET, NODE
from tests.support.installed import apply, kubectl

# On the sys.path of tests; protoc looks there.
REGISTRATION, registration = grpc.protos_and_services("tests/support/kubelet_plugins.proto")
DEVICES, devices = grpc.protos_and_services("tests/support/kubelet_devices.proto")
CDI = Path("/var/run/cdi")


@dataclass
class DeviceDriver:
    """The driver, which is one with the plugin that the kubelet calls.

    Attributes:
        name: its name, that of the class of its devices and that of their CDI kind's vendor.
        on_machine: the node that each device is.
        prepared: the claims that the kubelet has had prepared and not given back, by UID, with their devices.
        broken: why it prepares none; empty: it does.
    """

    name: str
    on_machine: str
    prepared: dict[str, list[str]] = field(default_factory=dict)
    broken: str = ""

    @property
    def kind(self) -> str:
        """The CDI kind of the devices."""
        return f"{self.name}/node"

    async def publish(self, *names: str) -> None:
        """Tells that the node has these devices, and no others."""
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        listed = [{"name": name, "attributes": {"type": {"string": "test"}}} for name in names]
        spec = {"driver": self.name, "nodeName": NODE, "pool": pool, "devices": listed}
        await apply(_resource("ResourceSlice", self.name, spec))

    async def GetInfo(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - of the protocol, as below
        """Who it is."""
        return REGISTRATION.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=str(_endpoint(self.name)), supported_versions=["v1.DRAPlugin"]
        )

    async def NotifyRegistrationStatus(self, status: Any, _context: Any) -> Any:  # noqa: N802
        """Whether the kubelet has taken it."""
        assert status.plugin_registered, status.error
        return REGISTRATION.RegistrationStatusResponse()

    async def NodePrepareResources(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Before the containers of a pod are made."""
        answer = DEVICES.NodePrepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].CopyFrom(await self._prepare(claim))
        return answer

    async def NodeUnprepareResources(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """After they are gone."""
        answer = DEVICES.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.prepared.pop(claim.uid, None)
            answer.claims[claim.uid].CopyFrom(DEVICES.NodeUnprepareResourceResponse())
        return answer

    async def _prepare(self, claim: Any) -> Any:
        if self.broken:
            return DEVICES.NodePrepareResourceResponse(error=self.broken)
        told = json.loads(await kubectl("get", "resourceclaim", claim.name, "-n", claim.namespace, "-o", "json"))
        results = told["status"]["allocation"]["devices"]["results"]
        self.prepared[claim.uid] = [one["device"] for one in results]
        return DEVICES.NodePrepareResourceResponse(
            devices=[
                DEVICES.Device(
                    request_names=[one["request"]],
                    pool_name=one["pool"],
                    device_name=one["device"],
                    cdi_device_ids=[f"{self.kind}={one['device']}"],
                )
                for one in results
            ]
        )


@contextlib.asynccontextmanager
async def serving(name: str, on_machine: str, *names: str) -> AsyncIterator[DeviceDriver]:
    """A driver with these devices, and a DeviceClass of its name for all of them, for the block."""
    driver = DeviceDriver(name, on_machine)
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_specified(driver, names))
        stack.push_async_callback(
            kubectl, "delete", "--ignore-not-found", f"deviceclass/{name}", f"resourceslice/{name}"
        )
        await stack.enter_async_context(_listening(driver))
        await apply(_resource("DeviceClass", name, {"selectors": [selector]}))
        await driver.publish(*names)
        yield driver


@contextlib.contextmanager
def _specified(driver: DeviceDriver, names: Sequence[str]) -> Iterator[None]:
    """The CDI specification of its devices."""
    file = CDI / f"{driver.name}.json"
    CDI.mkdir(exist_ok=True)
    file.write_text(json.dumps(_cdi(driver, names)))
    try:
        yield
    finally:
        file.unlink()


@contextlib.asynccontextmanager
async def _listening(driver: DeviceDriver) -> AsyncIterator[None]:
    """Its two sockets: the kubelet finds the first one, and is told of the other."""
    endpoint, found = _endpoint(driver.name), KUBELET / "plugins_registry" / f"{driver.name}.sock"
    endpoint.parent.mkdir(parents=True, exist_ok=True)
    servers: list[aio.Server] = []
    try:
        for socket, add in (
            (endpoint, devices.add_DRAPluginServicer_to_server),
            (found, registration.add_RegistrationServicer_to_server),
        ):
            server = aio.server()
            servers.append(server)
            add(driver, server)
            server.add_insecure_port(f"unix://{socket}")
            await server.start()
        yield
    finally:
        for server in reversed(servers):
            await server.stop(None)
        for socket in (found, endpoint):
            socket.unlink(missing_ok=True)
        endpoint.parent.rmdir()


def _endpoint(name: str) -> Path:
    return KUBELET / "plugins" / name / "dra.sock"


def _cdi(driver: DeviceDriver, names: Sequence[str]) -> dict[str, Any]:
    edits = {
        name: {
            "deviceNodes": [{"path": f"/dev/rollbox-{name}", "hostPath": driver.on_machine, "permissions": "rw"}],
            "env": [f"ROLLBOX_TEST_DEVICE={name}"],
            "mounts": [{"hostPath": "/etc/os-release", "containerPath": "/driver/release", "options": ["ro", "bind"]}],
        }
        for name in names
    }
    listed = [{"name": name, "containerEdits": one} for name, one in edits.items()]
    return {"cdiVersion": "0.6.0", "kind": driver.kind, "devices": listed}


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
