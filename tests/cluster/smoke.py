"""Whether the cluster does what the tests will ask of it, each thing tried once: `python -m tests.cluster smoke`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

from tests.cluster import images, layout
from tests.cluster.kubectl import KubectlError, kubectl, read
from tests.cluster.layout import HERE, REGISTRY
from tests.cluster.processes import say

NAMESPACE = ("-n", "rollbox-smoke")
IMAGE = f"{REGISTRY}/rollbox-cluster/busybox:1"
APPLETS = ["sh", "sleep", "httpd", "printf", "nslookup", "nc", "uname", "dmesg", "cat", "echo", "tail", "ls", "true"]
DEADLINE_S = 60.0


class SmokeError(Exception):
    """The cluster did something else than it should."""


def smoke() -> int:
    """Run every check; 0 when all hold."""
    images.push(IMAGE, {"bin/busybox": Path("/bin/busybox")}, ["/bin/sh"], {f"bin/{a}": "busybox" for a in APPLETS})
    checks: list[Callable[[], None]] = [_ready, _gvisor, _logs, _peers, _names, _api, _memory]
    if layout.cni() == "cilium":
        checks += [_policy, _domains]
    with _objects():
        return max(_try(check) for check in checks)


@contextmanager
def _objects() -> Iterator[None]:
    manifest = Template((HERE / "files/smoke.yaml").read_text()).substitute(image=IMAGE)
    kubectl("apply", "-f", "-", given=manifest)
    try:
        yield
    finally:
        kubectl("delete", "--wait", "--timeout=60s", "-f", "-", given=manifest, check=False, timeout=90)


def _try(check: Callable[[], None]) -> int:
    began = time.monotonic()
    try:
        check()
    except (SmokeError, KubectlError) as error:
        say(f"  FAILED {check.__doc__}: {error}")
        return 1
    say(f"  ok     {check.__doc__} ({time.monotonic() - began:.1f} s)")
    return 0


def _ready() -> None:
    """Pods of one and of two containers start in gVisor"""
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/pair", "pod/peer", *NAMESPACE, timeout=90)


def _gvisor() -> None:
    """Exec works, and the kernel inside is gVisor's"""
    _expect("gVisor", _exec("pair", "dmesg", container="second"))


def _logs() -> None:
    """Logs are kept"""
    _expect("started", kubectl("logs", "pair", "-c", "server", *NAMESPACE))


def _peers() -> None:
    """Pods reach each other by address"""
    address = read("pod", "pair", *NAMESPACE)["status"]["podIP"]
    _expect("served", _fetch(address, 8080))


def _names() -> None:
    """Names are resolved, services are reached by them"""
    _expect(layout.API_SERVICE, _exec("peer", "nslookup", "kubernetes.default.svc.cluster.local"))
    _expect("served", _fetch("pair.rollbox-smoke.svc.cluster.local", 80))


def _api() -> None:
    """The API server is reached from a pod"""
    _exec("peer", "nc", "-w", "3", "kubernetes.default.svc.cluster.local", "443", "-e", "true")


def _memory() -> None:
    """Memory beyond the limit is reported as OOMKilled"""
    ends = time.monotonic() + DEADLINE_S
    state: dict[str, Any] = {}
    while time.monotonic() < ends:
        states = read("pod", "hungry", *NAMESPACE)["status"].get("containerStatuses", [])
        state = states[0]["state"] if states else {}
        if "terminated" in state:
            return _expect("OOMKilled", state["terminated"]["reason"])
        time.sleep(0.3)
    raise SmokeError(f"it was never killed: {state}")


def _policy() -> None:
    """A policy without egress silences a pod, and only while it is there"""
    policy = (HERE / "files/smoke-policy.yaml").read_text()
    address = read("pod", "pair", *NAMESPACE)["status"]["podIP"]
    kubectl("apply", "-f", "-", given=policy)
    _until(lambda: not _reaches(address), "the pod still reaches another one")
    kubectl("delete", "-f", "-", given=policy)
    _until(lambda: _reaches(address), "the pod reaches nothing although the policy is gone")


def _domains() -> None:
    """A rule for names lets one be resolved and refuses another"""
    policy = (HERE / "files/smoke-names.yaml").read_text()
    kubectl("apply", "-f", "-", given=policy)
    _until(lambda: not _resolves("pair.rollbox-smoke"), "another name is still resolved")
    _until(lambda: _resolves("kubernetes.default"), "the name that is allowed is not resolved")
    kubectl("delete", "-f", "-", given=policy)


def _resolves(service: str) -> bool:
    try:
        return "10.97." in _exec("peer", "nslookup", f"{service}.svc.cluster.local").partition("\n\n")[2]
    except KubectlError:
        return False


def _reaches(address: str) -> bool:
    try:
        return "served" in _fetch(address, 8080)
    except KubectlError:
        return False


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > ends:
            raise SmokeError(otherwise)
        time.sleep(0.2)


def _fetch(host: str, port: int) -> str:
    """By hand: Debian's static busybox crashes in its wget."""
    request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {host} {port}"
    return _exec("peer", "sh", "-c", request)


def _exec(pod: str, *command: str, container: str = "") -> str:
    chosen = ["-c", container] if container else []
    return kubectl("exec", pod, *chosen, *NAMESPACE, "--", *command)


def _expect(wanted: str, text: str) -> None:
    if wanted not in text:
        raise SmokeError(f"no {wanted!r} in {text.strip()[-300:]!r}")
