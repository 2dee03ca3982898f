"""What an attacker tries on an agent: every method, with tokens that open nothing; and what shows an effect of that."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import sys
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message

from controlplane.clock import SystemClock
from controlplane.lifecycle import SigningKey
from controlplane.model import Sandbox as Record
from controlplane.wire import agent_pb2 as agent
from rollbox import Sandbox
from tests.support.stack import Product
from tests.support.wire import token_of
from tests.support.world import SPEC

PROBE = Path(__file__).with_name("agent_probe.py")
SERVICE = agent.DESCRIPTOR.services_by_name["Agent"]
UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED = "16", "7", "12"
# Of a call that was looked at: well, or for what it asks. (No terminal to resize, nothing that listens on the port.)
LET_IN = {"0", "open", "3", "14"}
HOUR_MS = 3_600_000
# What the calls are about: a directory with one file, and a command that waits for input.
PLACE = "/tmp/victim"
FILE = f"{PLACE}/file"
VICTIM = "victim"


def _archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("archived"))
    return packed.getvalue()


def _moved(to: bytes) -> Message:
    fields: Any = {"from": _FILE, "to": _PLACE + to}
    return agent.MoveFileRequest(**fields)


_FILE, _PLACE = FILE.encode(), PLACE.encode()
# Each has an effect that can be seen, where a call can have one; those that end the command or take the file away come
# last.
CALLS: Mapping[str, tuple[Message, ...]] = {
    "Exec": (agent.ExecRequest(exec_id="stray-1", command=f"touch {PLACE}/exec"),),
    "Start": (agent.ExecRequest(exec_id="stray-2", command=f"touch {PLACE}/start"),),
    "Attach": (agent.AttachRequest(exec_id=VICTIM),),
    "WriteStdin": (agent.StdinChunk(exec_id=VICTIM, data=b"x\n"),),
    "Resize": (agent.ResizeRequest(exec_id=VICTIM, terminal=agent.TerminalSize(columns=80, rows=25)),),
    "List": (agent.ListRequest(),),
    "ReadFile": (agent.ReadFileRequest(path=_FILE),),
    "WriteFile": (agent.WriteFileRequest(path=_PLACE + b"/written"), agent.WriteFileRequest(data=b"x", eof=True)),
    "StatFile": (agent.PathRequest(path=_FILE),),
    "ListDirectory": (agent.ListDirectoryRequest(path=_PLACE),),
    "MakeDirectory": (agent.MakeDirectoryRequest(path=_PLACE + b"/made"),),
    "CopyFile": (_moved(b"/copied"),),
    "ReadArchive": (agent.ReadArchiveRequest(path=_PLACE),),
    "WriteArchive": (
        agent.WriteArchiveRequest(path=_PLACE),
        agent.WriteArchiveRequest(data=_archive(), eof=True),
    ),
    "WatchFiles": (agent.WatchRequest(path=_PLACE),),
    "Connect": (agent.PortFrame(port=9),),
    "WaitPort": (agent.WaitPortRequest(port=9),),
    "Usage": (agent.UsageRequest(),),
    "Configure": (agent.ConfigureRequest(env={"STRAY": "1"}),),
    "Health": (agent.HealthRequest(),),
    "OpenEgress": (agent.OpenEgressRequest(ticket=b"\0" * 16),),
    "ListRefused": (agent.ListRefusedRequest(),),
    "Signal": (agent.SignalRequest(exec_id=VICTIM, signal=15),),
    "Cancel": (agent.CancelRequest(exec_id=VICTIM),),
    "MoveFile": (_moved(b"/moved"),),
    "RemoveFile": (agent.RemoveFileRequest(path=_PLACE + b"/copied"),),
    "CancelAll": (agent.CancelAllRequest(),),
}
UNTOUCHED = "file\nkept\n"


async def forged(stack: Product, sandbox: Sandbox) -> dict[str, tuple[str | None, str]]:
    """Tokens that open nothing here, by what is wrong with them, and the status that each is refused with."""
    clock = SystemClock()
    signing = SigningKey.load(await stack.signing_key(), clock)
    now_ms = clock.now_ms()
    other = Record("another", sandbox.record.owner, SPEC, now_ms, now_ms + HOUR_MS, "f")
    ours = Record(sandbox.id, sandbox.record.owner, SPEC, now_ms, now_ms + HOUR_MS, "f")
    past = Record(sandbox.id, sandbox.record.owner, SPEC, now_ms - 2 * HOUR_MS, now_ms - HOUR_MS, "f")
    good = signing.token(ours).text
    return {
        "none": (None, UNAUTHENTICATED),
        "garbage": ("garbage", UNAUTHENTICATED),
        "three parts of garbage": ("a.b.c", UNAUTHENTICATED),
        "of another key": (SigningKey(Ed25519PrivateKey.generate(), clock).token(ours).text, UNAUTHENTICATED),
        "expired": (signing.token(past).text, UNAUTHENTICATED),
        "alg none, unsigned": (f"{_unsigned(good)}.", UNAUTHENTICATED),
        "alg none, with a good signature": (f"{_unsigned(good)}.{good.rpartition('.')[2]}", UNAUTHENTICATED),
        "of another sandbox": (signing.token(other).text, PERMISSION_DENIED),
        "for the readiness push": (signing.readiness(ours).text, PERMISSION_DENIED),
    }


def _unsigned(token: str) -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}"


async def own(stack: Product, sandbox: Sandbox) -> str:
    """The token that opens everything here."""
    return await token_of(stack, sandbox.id)


def calls(tokens: Iterable[str | None], address: str, source: str = "") -> str:
    """What the probe is asked for: every method, with each of these tokens."""
    asked = [
        (f"/{SERVICE.full_name}/{method}", token, [one.SerializeToString().hex() for one in messages])
        for token in tokens
        for method, messages in CALLS.items()
    ]
    return json.dumps({"address": address, "source": source, "calls": asked})


def by_method(printed: str | bytes) -> list[dict[str, str]]:
    """How the calls ended, by method; one for each token."""
    ended: list[str] = json.loads(printed)
    methods = list(CALLS)
    return [dict(zip(methods, ended[at : at + len(methods)], strict=True)) for at in range(0, len(ended), len(methods))]


async def called_from_inside(sandbox: Sandbox, asked: str) -> list[dict[str, str]]:
    """The probe, run by the sandbox's own code."""
    await sandbox.files.write("/tmp/probe.py", PROBE.read_bytes())
    probe = await sandbox.exec(["python3", "/tmp/probe.py"], stdin=asked.encode(), timeout=240, check=True)
    return by_method(probe.stdout)


async def called_from_here(asked: str) -> list[dict[str, str]]:
    """The same probe, run on this machine."""
    pipe = asyncio.subprocess.PIPE
    probe = await asyncio.create_subprocess_exec(sys.executable, str(PROBE), stdin=pipe, stdout=pipe)
    printed, _ = await probe.communicate(asked.encode())
    assert probe.returncode == 0
    return by_method(printed)


@contextlib.asynccontextmanager
async def victim(sandbox: Sandbox) -> AsyncIterator[Any]:
    """Lays out what the calls are about; afterwards the command is gone."""
    await sandbox.exec(f"mkdir {PLACE}; echo kept > {FILE}", check=True)
    command = f"read x; touch {PLACE}/stdin; exec sleep 86400"
    async with await sandbox.spawn(command, exec_id=VICTIM) as process:
        yield process


async def effects(sandbox: Sandbox) -> tuple[str, set[str], bool, str]:
    """What calls can change: the files, the commands that were started, whether the one still runs, the environment."""
    files = (await sandbox.exec(["sh", "-c", f"ls {PLACE}; cat {FILE}; true"])).stdout
    listed = {one.exec_id: one.running for one in await sandbox.processes.list()}
    environment = (await sandbox.exec("echo $STRAY")).stdout
    return files, {one for one in listed if one.startswith("stray")}, listed[VICTIM], environment


NO_EFFECTS = (UNTOUCHED, set[str](), True, "\n")


async def takes_its_own_token_only(stack: Product, sandbox: Sandbox, address: str) -> None:
    """Judge an agent that can be reached from here: what is no token of its own has no effect, and its own has each."""
    assert set(CALLS) == {method.name for method in SERVICE.methods}
    tokens = await forged(stack, sandbox)
    async with victim(sandbox):
        ended = await called_from_here(calls([token for token, _ in tokens.values()], address))
        refused = {name: dict.fromkeys(CALLS, status) for name, (_, status) in tokens.items()}
        assert dict(zip(tokens, ended, strict=True)) == refused, ended
        assert (seen := await effects(sandbox)) == NO_EFFECTS, seen
        (ended_well,) = await called_from_here(calls([await own(stack, sandbox)], address))
        # The link of egress takes a token of its own, and a sandbox with a relay.
        assert ended_well.pop("OpenEgress") in {UNIMPLEMENTED, PERMISSION_DENIED}
        assert set(ended_well.values()) <= LET_IN, ended_well
        files, started, runs, _ = await effects(sandbox)
        assert set(files.split()) == {"archived", "exec", "made", "moved", "start", "stdin", "written"}, files
        assert (started, runs) == ({"stray-1", "stray-2"}, False), (started, runs)
