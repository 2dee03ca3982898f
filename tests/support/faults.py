"""Taking parts of an installation, or of the test cluster's node, away and waiting until they are whole again."""

from __future__ import annotations

import asyncio
import sys

from tests.support.installed import Installed, kubectl


async def kill(stack: Installed, component: str, *, everyone: bool = False) -> None:
    """Kills pods of a component without any grace."""
    pods = await stack.pods(component)
    await kubectl(
        "delete", "pod", *(pods if everyone else pods[:1]), "-n", stack.namespace, "--grace-period=0", "--force"
    )


async def ready(stack: Installed, component: str) -> None:
    """Waits until a component is whole again."""
    label = f"app.kubernetes.io/component={component}"
    await kubectl("wait", "pods", "-n", stack.namespace, "-l", label, "--for=condition=Ready", "--timeout=120s")


async def node_part(verb: str, name: str) -> None:
    """Stops or starts a part of the test cluster's node."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.cluster", verb, name),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
