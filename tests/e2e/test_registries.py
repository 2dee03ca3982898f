"""What registries do when they do not give a node an image: the create fails within seconds and says which it was."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rollbox import Client
from rollbox.errors import SandboxError
from tests.support.installed import Installed, apply, kubectl, own_cluster
from tests.support.odd_registry import PASSWORD, USER, OddRegistry, odd_registry

SMALL: dict[str, Any] = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi")}
# Far more than any of them takes on a busy node; that of the one that takes all of its time comes last.
START_TIMEOUT_S, SILENT_S = 120.0, 20.0
TOLD_WITHIN_S = 150.0
SECRET = "rollbox-tests-registries"
# What the pull of a node runs into, by kinds of `OddRegistry`: the code, whose fault it is, and words of the detail.
PULLS = {
    "absent": ("image_not_found", "caller", "absent:1"),
    "old": ("unsupported", "caller", "schema 1"),
    "away": ("image_pull_failed", "platform", "the registry was not reached"),
    "private": ("image_pull_failed", "platform", "check the image pull secrets"),
    "expired": ("image_pull_failed", "platform", "check the image pull secrets"),
    "busy": ("image_pull_failed", "platform", "limits the rate of pulls"),
    "broken": ("image_pull_failed", "platform", "500"),
    "cut": ("image_pull_failed", "platform", "EOF"),
    "lying": ("image_pull_failed", "platform", "digest"),
    "foreign": ("image_pull_failed", "platform", "not for the architecture of the node"),
    # It is pulled for as long as the start may take.
    "silent": ("start_timeout", "platform", "has been pulling 127.0.0.1"),
}


@contextlib.asynccontextmanager
async def credentials(stack: Installed, registry: OddRegistry) -> AsyncIterator[Callable[[str], Any]]:
    """What gives every pod of a sandbox a pull secret for `slow` of this registry, with a password, for the block.

    Not by `sandboxes.imagePullSecrets`, which would take a release of its own: the node sees the same.
    """

    async def given(password: str) -> None:
        account = base64.b64encode(f"{USER}:{password}".encode()).decode()
        text = json.dumps({"auths": {registry.image("slow").rpartition(":")[0]: {"auth": account}}})
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson"}
        more = {"metadata": {"name": SECRET}, "stringData": {".dockerconfigjson": text}}
        await apply({**secret, **more}, namespace=stack.sandboxes)

    async def named(names: list[dict[str, str]] | None) -> None:
        patch = json.dumps({"imagePullSecrets": names})
        await kubectl("patch", "serviceaccount", "default", "-n", stack.sandboxes, "--type=merge", "--patch", patch)

    await given("expired")
    await named([{"name": SECRET}])
    try:
        yield given
    finally:
        await named(None)
        await kubectl("delete", "secret", SECRET, "-n", stack.sandboxes)


async def test_each_way_in_which_a_pull_goes_wrong_has_its_code_within_seconds(
    stack: Installed, client: Client
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's nodes do not reach this process")
    # The node is this machine, and asks without TLS what is on it.
    async with odd_registry() as registry, credentials(stack, registry) as given:
        special = {"away": "127.0.0.1:1/away:1", "expired": registry.image("slow")}

        async def refused(kind: str) -> tuple[SandboxError, float]:
            began_s = time.monotonic()
            within_s = SILENT_S if kind == "silent" else START_TIMEOUT_S
            creating = client.create(special.get(kind, registry.image(kind)), **SMALL, start_timeout=within_s)
            with pytest.raises(SandboxError) as caught:
                await asyncio.wait_for(creating, TOLD_WITHIN_S)
            return caught.value, time.monotonic() - began_s

        *others, silent = PULLS
        told = dict(zip(others, await asyncio.gather(*map(refused, others)), strict=True))
        told[silent] = await refused(silent)
        for kind, (error, took_s) in told.items():
            print(f"{kind}: {error.code} ({error.fault}) after {took_s:.1f} s: {error.detail}")
        for kind, (code, fault, words) in PULLS.items():
            error, _ = told[kind]
            assert (error.code, error.fault) == (code, fault), (kind, error)
            assert words in str(error.detail), (kind, error)
        assert told[silent][0].details["phase"] == "pull"
        timeline = await client.timeline(str(told[silent][0].sandbox_id))
        assert "has been pulling" in timeline.summary
        assert "pull" in [one.word for one in timeline.moments]
        # A registry that is slow is none of these, and neither are credentials that were renewed.
        await given(PASSWORD)
        began_s = time.monotonic()
        async with await client.create(registry.image("slow"), **SMALL) as sandbox:
            print(f"slow, with new credentials: started after {time.monotonic() - began_s:.1f} s")
            assert len(await sandbox.files.read("/random")) == 1 << 20
        assert registry.layers.count("slow") == 1
