"""What openai-agents' runner and its own sandbox client of E2B do, a case a function; the model is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import urllib.request
from pathlib import Path

from agents import RunConfig, Runner
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.snapshot import LocalSnapshotSpec, NoopSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call

IMAGE = os.environ["IMAGE"]
BRIDGE = os.environ["E2B_API_URL"]
WITHIN_S = 300
SOLVE = "printf 'def add(a, b):\\n    return a %s b\\n' > add.py"
CHECK = "python3 -B -c 'import add; assert add.add(1, 2) == 3' && echo solved"


def options(**given):
    # What it asks for by itself is a pause at the timeout, which the bridge has not.
    told = {"sandbox_type": "e2b", "template": IMAGE, "timeout": 300, "on_timeout": "kill"}
    return E2BSandboxClientOptions(**{**told, **given})


@contextlib.asynccontextmanager
async def session(snapshot=None, **given):
    client = E2BSandboxClient()
    made = await client.create(snapshot=snapshot or NoopSnapshotSpec(), manifest=Manifest(), options=options(**given))
    try:
        async with made:
            yield made
    finally:
        await client.delete(made)


async def agent():
    """An agent solves its task by its tools."""
    commands = [SOLVE % "-", CHECK, SOLVE % "+", CHECK]
    calls = [[function_call("exec_command", {"cmd": cmd}, call_id=str(at))] for at, cmd in enumerate(commands)]
    model = ScriptedModel([*calls, [assistant_message("done")]])
    where = SandboxRunConfig(client=E2BSandboxClient(), options=options(), snapshot=NoopSnapshotSpec())
    coder = SandboxAgent(name="coder", model=model, capabilities=[Shell()])
    result = await Runner.run(coder, "Solve it.", run_config=RunConfig(tracing_disabled=True, sandbox=where))
    model.assert_complete()
    told = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return {
        "wrong": "AssertionError" in told[1],
        "right": told[3].rstrip().endswith("solved"),
        "said": result.final_output,
    }


async def commands():
    async with session(envs={"A": "1"}) as made:
        ran = await made.exec("echo $A; echo e >&2; exit 3")
        try:
            await made.exec("sleep 100", timeout=2)
        except ExecTimeoutError:
            return {"seen": [ran.exit_code, ran.stdout.decode(), ran.stderr.decode()], "late": True}


async def files():
    async with session() as made:
        await made.mkdir(Path("d"), parents=True)
        await made.write(Path("d/f"), io.BytesIO(b"\x00data"))
        data = (await made.read(Path("d/f"))).read()
        try:
            await made.read(Path("none"))
        except WorkspaceReadNotFoundError:
            return {"data": [*data], "missing": True}


async def terminal():
    async with session() as made:
        begun = await made.pty_exec_start("python3", "-q", tty=True, yield_time_s=1)
        told = await made.pty_write_stdin(session_id=begun.process_id, chars="print(6 * 7)\n", yield_time_s=5)
        return {"says": b"42" in told.output if isinstance(told.output, bytes) else "42" in told.output}


async def ports():
    async with session(exposed_ports=(8000,)) as made:
        await made.write(Path("index.html"), io.BytesIO(b"hello from within"))
        await made.exec("nohup python3 -m http.server 8000 >/dev/null 2>&1 &")
        where = await made.resolve_exposed_port(8000)
        request = urllib.request.Request(BRIDGE, headers={"Host": f"{where.host}:{where.port}"})

        def get():
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()

        while not (said := await asyncio.to_thread(get)):
            await asyncio.sleep(0.05)
        return {"tls": where.tls, "said": said}


async def kept():
    """The workspace of a run is there in the next one."""
    client, folder = E2BSandboxClient(), Path(os.environ["HOME"], "kept")
    folder.mkdir(exist_ok=True)
    first = await client.create(snapshot=LocalSnapshotSpec(base_path=folder), manifest=Manifest(), options=options())
    async with first:
        await first.write(Path("f"), io.BytesIO(b"kept"))
    state = client.deserialize_session_state(first.state.model_dump(mode="json"))
    again = await client.resume(state)
    async with again:
        return {"data": (await again.read(Path("f"))).read().decode(), "other": state.sandbox_id != ""}


async def paused():
    """What it asks for by itself is refused before anything is made."""
    try:
        async with session(on_timeout="pause"):
            return {}
    except Exception as error:
        return {"says": "is not supported by rollbox's bridge" in str(error)}


CASES = (agent, commands, files, terminal, ports, kept, paused)


async def main() -> None:
    for case in CASES:
        try:
            told = {"case": case.__name__, "saw": await asyncio.wait_for(case(), WITHIN_S)}
        except Exception as error:  # told to the test
            told = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(told), flush=True)


asyncio.run(main())
