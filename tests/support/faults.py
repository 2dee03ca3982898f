"""Taking parts of an installation, or of the test cluster's node, away and waiting until they are whole again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.layout import LOGS
from tests.support.installed import Installed, kubectl, objects
from tests.support.waiting import until


async def kill(stack: Installed, component: str, *, everyone: bool = False) -> None:
    """Kills pods of a component without any grace."""
    pods = await stack.pods(component)
    await kubectl(
        "delete", "pod", *(pods if everyone else pods[:1]), "-n", stack.namespace, "--grace-period=0", "--force"
    )


async def ready(stack: Installed, component: str) -> None:
    """Waits until a component is whole again: as many pods as were declared, those that are still to come too."""
    await until(lambda: _whole(stack, component), 120)


async def _whole(stack: Installed, component: str) -> bool:
    await asyncio.sleep(0.5)
    label = f"app.kubernetes.io/component={component}"
    owners = await objects("deployments,statefulsets", "-n", stack.namespace, "-l", label)
    pods = [pod for pod in await stack.component(component) if "deletionTimestamp" not in pod["metadata"]]
    conditions = [one for pod in pods for one in pod["status"].get("conditions", ()) if one["type"] == "Ready"]
    whole = sum(owner["spec"]["replicas"] for owner in owners)
    return len(pods) == whole and [one["status"] for one in conditions] == ["True"] * whole


async def node_part(verb: str, name: str) -> None:
    """Stops or starts a part of the test cluster's node."""
    await node_part_of(verb, name)


async def node_part_of(*words: str) -> None:
    """A verb of the test cluster's command line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.cluster",
        *words,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()


async def end_hung_shim() -> bool:
    """Kill the shim that containerd waits for while it starts; return whether there was one.

    containerd asks a shim that serves nothing any more to end, and waits for it without a limit. One of gVisor may
    hang, since it tells events to a containerd that does not answer yet. An operator would end it, too.
    """
    _, _, shim = (
        (LOGS / "containerd.log").read_text(errors="replace").rpartition('msg="cleaning leaked shim process" id=')
    )
    return await _kill_found(f"containerd-shim.*{shim.split()[0]}") if shim else False


async def _kill_found(pattern: str) -> bool:
    found = await asyncio.create_subprocess_exec("pgrep", "-f", pattern, stdout=asyncio.subprocess.PIPE)
    out, _ = await found.communicate()
    pids = out.decode().split()
    return bool(pids) and await (await asyncio.create_subprocess_exec("kill", "-9", *pids)).wait() == 0


def processes_of(pod_uid: str, name: str) -> Iterator[int]:
    """The processes of this name in a pod, where this machine is its node."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"pod{pod_uid}/" in (folder / "cgroup").read_text()
            if ours and (folder / "comm").read_text().strip() == name[:15]:
                yield int(folder.name)


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process that does nothing while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        # A kubelet whose probes were not answered may have ended it meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def signal_kernel(sandbox_id: str, number: signal.Signals) -> None:
    """Sends a signal to the gVisor kernel of a sandbox: its process on the node, found by the pod it belongs to."""
    uid = (
        await kubectl(
            "get", "pods", "-A", "-o", f'jsonpath={{.items[?(@.metadata.name=="{sandbox_id}")].metadata.uid}}'
        )
    ).strip()
    assert uid
    found = await asyncio.create_subprocess_exec("pgrep", "-f", f"runsc-sandbox.*{uid}", stdout=asyncio.subprocess.PIPE)
    out, _ = await found.communicate()
    pids = out.decode().split()
    assert pids, f"no gVisor process of pod {uid}"
    assert await (await asyncio.create_subprocess_exec("kill", f"-{int(number)}", *pids)).wait() == 0
