"""The test cluster's image registry behind a slow line: a second process on its data, in a network namespace."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template

from tests.cluster.layout import CACHE, ETC, SLOW_REGISTRY, STATE
from tests.cluster.toolchain import SYSTEM_PATH

NAMESPACES = Path("/run/netns")
NAMESPACE = "rollbox-bench"
HERE, THERE = "rbx-bench0", "rbx-bench1"
GATEWAY, ADDRESS, PORT = "10.99.77.1", "10.99.77.2", 5000
CONFIG = Template("""version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $root}, maintenance: {readonly: {enabled: true}}}
http: {addr: $address}
""")
HOSTS = f"""server = "http://{ADDRESS}:{PORT}"
[host."http://{ADDRESS}:{PORT}"]
  capabilities = ["pull", "resolve"]
"""


class SlowRegistry:
    """What went over its line."""

    def sent_bytes(self) -> int:
        """To this machine, since the line was laid."""
        return int(Path(f"/sys/class/net/{HERE}/statistics/rx_bytes").read_text())


@asynccontextmanager
async def slow_registry(mbit: int) -> AsyncIterator[SlowRegistry]:
    """The registry, which nodes reach as `SLOW_REGISTRY` while the block runs, at so many megabits a second."""
    hosts = ETC / "certs.d" / SLOW_REGISTRY
    config = STATE / "bench-registry.yaml"
    _remove()
    _lay(mbit)
    try:
        hosts.mkdir(parents=True, exist_ok=True)
        (hosts / "hosts.toml").write_text(HOSTS)
        config.write_text(CONFIG.substitute(root=CACHE / "registry", address=f"{ADDRESS}:{PORT}"))
        serve = ("ip", "netns", "exec", NAMESPACE, "docker-registry", "serve", str(config))
        process = await asyncio.create_subprocess_exec(*serve, env={"PATH": SYSTEM_PATH})
        try:
            await _answers()
            yield SlowRegistry()
        finally:
            process.terminate()
            await process.wait()
    finally:
        shutil.rmtree(hosts, ignore_errors=True)
        config.unlink(missing_ok=True)
        _remove()


def _lay(mbit: int) -> None:
    _ip("netns", "add", NAMESPACE)
    _ip("link", "add", HERE, "type", "veth", "peer", "name", THERE, "netns", NAMESPACE)
    _ip("address", "add", f"{GATEWAY}/30", "dev", HERE)
    _ip("link", "set", HERE, "up")
    _ip("-n", NAMESPACE, "address", "add", f"{ADDRESS}/30", "dev", THERE)
    _ip("-n", NAMESPACE, "link", "set", "lo", "up")
    _ip("-n", NAMESPACE, "link", "set", THERE, "up")
    limit = ("rate", f"{mbit}mbit", "burst", "512kb", "latency", "100ms")
    _run("tc", "-n", NAMESPACE, "qdisc", "add", "dev", THERE, "root", "tbf", *limit)


def _remove() -> None:
    for words in (("link", "delete", HERE), ("netns", "delete", NAMESPACE)):
        subprocess.run(("ip", *words), check=False, capture_output=True)
    # `ip netns add` mounts this folder on itself, and `delete` leaves it.
    if NAMESPACES.is_dir() and not any(NAMESPACES.iterdir()):
        subprocess.run(("umount", str(NAMESPACES)), check=False, capture_output=True)
        NAMESPACES.rmdir()


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


async def _answers(deadline_s: float = 20.0) -> None:
    ends = time.monotonic() + deadline_s
    while True:
        try:
            _, writer = await asyncio.open_connection(ADDRESS, PORT)
        except OSError:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
