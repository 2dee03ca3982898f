"""Creates a sandbox, has it try what egress must refuse and what must work, and says what was found."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import resources
from typing import Any

from rollbox.client import Client
from rollbox.egress import Egress, EgressPolicy, EgressRule
from rollbox.egress_check import judged, tries
from rollbox.egress_check.judged import Found
from rollbox.egress_check.tries import METADATA, Place, Seen, Try
from rollbox.errors import NotFound, SandboxError, Unsupported
from rollbox.sandbox import Sandbox

# Longer than a sandbox is without an egress replica when its own one dies.
SWITCH_S = 20.0
TRIES_S = 60.0
TTL_S = 300.0
ABSENT = "not installed: sandboxes reach nothing outside, whatever they ask for"

Inside = Callable[[Sandbox], Coroutine[Any, Any, Sequence[Place]]]


async def check(
    client: Client, image: str, *, probe: Place | None = None, inside: Sequence[Place] = (), of: Inside | None = None
) -> list[Found]:
    """Tries it. Where egress is not installed it is one finding, and no sandbox is created.

    Args:
        client: of an owner.
        image: with python3 in it; empty: nothing is tried.
        probe: what sandboxes are to reach, if anything.
        inside: what no sandbox may reach, beside the metadata service.
        of: more of that, by the sandbox.

    Cost: a sandbox, three commands in it and two switches; 5 s at most for what must not answer, and 15 s for `probe`.
    """
    if not await installed(client):
        return [Found("", True, ABSENT)]
    if not image:
        return [Found("", True, "installed; give an image with python3 (--image), and a sandbox tries it")]
    try:
        async with await client.create(image, egress="offline", ttl=TTL_S, memory="256Mi") as sandbox:
            places = [METADATA, *inside, *(await of(sandbox) if of else ())]
            return await _tried(sandbox, places, probe)
    except SandboxError as error:
        return [Found("", False, f"not tried, since no sandbox came that far: {error.detail}", error.hint)]
    except ValueError as error:
        return [Found("", False, f"not tried: {error}", "Give an image with python3 in it (--image).")]


async def installed(client: Client) -> bool:
    """Whether there is egress at all; a control plane of before it knows no such thing.

    Raises:
        SandboxError: nobody can tell.
    """
    try:
        await client.egress_presets()
    except (Unsupported, NotFound):
        return False
    return True


async def _tried(sandbox: Sandbox, places: Sequence[Place], probe: Place | None) -> list[Found]:
    found = [*judged.offline(await _seen(sandbox, tries.offline()))]
    if (late := await _switched(sandbox, EgressPolicy(mode="open"))) is not None:
        return [*found, late]
    seen = await _seen(sandbox, tries.inside(places))
    found += [*judged.inside(places, seen), judged.cache(seen)]
    if probe is None:
        return found
    rule = EgressRule(host=probe.host, ports=[probe.port], name="probe")
    if (late := await _switched(sandbox, EgressPolicy(mode="allow", allow=[rule]))) is not None:
        return [*found, late]
    return [*found, judged.allowed(probe, (await _seen(sandbox, tries.allowed(probe)))[probe.name])]


async def _switched(sandbox: Sandbox, policy: Egress) -> Found | None:
    """None where the policy is in force."""
    try:
        await sandbox.egress(policy, timeout=SWITCH_S)
    except SandboxError as error:
        return Found("policy switch", False, error.detail, judged.LINK)
    return None


async def _seen(sandbox: Sandbox, tried: Sequence[Try]) -> Mapping[str, Seen]:
    program = resources.files("rollbox.egress_check").joinpath("program.py").read_text()
    answer = await sandbox.exec(["python3", "-c", program, tries.dumped(tried)], timeout=TRIES_S)
    return tries.told(answer.stdout or f"exit code {answer.exit_code}: {answer.stderr.strip()[-80:]}")
