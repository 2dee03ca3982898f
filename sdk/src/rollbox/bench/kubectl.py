"""The baseline: `kubectl exec` into the same pods, a program for each command, as people do it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

from rollbox.bench.sample import Wrong

_CONTAINER = "target"
# Without it a cluster that does not answer holds up the whole benchmark.
_ANSWERS_WITHIN = "--request-timeout=30s"


class Kubectl:
    """The program, with a kubeconfig.

    Args:
        kubeconfig: the file; None: what the environment says.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._env = {**os.environ} if kubeconfig is None else {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._namespaces: dict[str, str] = {}

    @staticmethod
    def there() -> bool:
        """Whether this machine has the program."""
        return shutil.which("kubectl") is not None

    async def why_not(self, sandbox_id: str) -> str:
        """Say why there is no baseline of a sandbox; "" where its pod was found."""
        if not self.there():
            return "kubectl is not installed here"
        selected = (
            "--all-namespaces",
            "--field-selector",
            f"metadata.name={sandbox_id}",
            "--output",
            "json",
            _ANSWERS_WITHIN,
        )
        code, out, said = await self._run("get", "pods", *selected)
        if code != 0:
            return f"kubectl get pods ended with {code}: {said.strip()[:200]}"
        pods = json.loads(out)["items"]
        if not pods:
            return f"the cluster of this kubeconfig has no pod {sandbox_id}"
        self._namespaces[sandbox_id] = pods[0]["metadata"]["namespace"]
        return ""

    async def true(self, sandbox_id: str) -> object:
        """Run `true` in the pod of a sandbox; returns `Wrong` when it fails. Cost: a program, a TLS connection."""
        if sandbox_id not in self._namespaces and (why := await self.why_not(sandbox_id)):
            return Wrong(why)
        where = ("--namespace", self._namespaces[sandbox_id], sandbox_id, "--container", _CONTAINER, _ANSWERS_WITHIN)
        code, _, _ = await self._run("exec", *where, "--", "true")
        return None if code == 0 else Wrong(f"kubectl exec ended with {code}")

    async def versions(self) -> dict[str, str]:
        """Return versions of program, API server, nodes and container runtimes; what is not told is left out."""
        told = await self._json("version", "--output", "json")
        found = {name: told.get(f"{name}Version", {}).get("gitVersion", "") for name in ("client", "server")}
        nodes = [one["status"]["nodeInfo"] for one in (await self._json("get", "nodes", "--output", "json"))["items"]]
        runtimes = {f"{one['containerRuntimeVersion']}, kernel {one['kernelVersion']}" for one in nodes}
        found = {"kubectl": found["client"], "kubernetes": found["server"], "nodes": ", ".join(sorted(runtimes))}
        return {name: version for name, version in found.items() if version}

    async def _json(self, *arguments: str) -> dict[str, Any]:
        code, out, _ = await self._run(*arguments, _ANSWERS_WITHIN)
        told: dict[str, Any] = json.loads(out) if code == 0 else {}
        return {"items": [], **told}

    async def _run(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, said = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, out.decode(errors="replace"), said.decode(errors="replace")
