"""What older versions of verifiers do over Prime's client, a case a function. Run by its own Python.

The runtime of their newer half, where they have one, and the environments of their older half: a shell, and a Python
that lives on. Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from importlib.util import find_spec

import verifiers as vf
from datasets import Dataset

IMAGE = os.environ["IMAGE"]
RUNTIME = find_spec("verifiers.v1.runtimes") is not None
LIVE = False
if RUNTIME:
    from verifiers.v1.runtimes.prime import PrimeConfig, PrimeRuntime

    LIVE = hasattr(PrimeRuntime, "supports_live_processes")


async def refused(call):
    """The class of the error of a call."""
    try:
        await call
    except Exception as error:  # what a user would see
        return type(error).__name__
    return "nothing"


async def started(**more):
    runtime = PrimeRuntime(PrimeConfig(image=IMAGE, **more), name="case")
    await runtime.start()
    return runtime


async def runtime_of_either_generation():
    found = []
    for vm in (False, True):
        runtime = await started(vm=vm)
        result = await runtime.run(["sh", "-c", "echo $A; pwd; echo e >&2; exit 3"], {"A": "with words"})
        await runtime.write("below/f", b"\x00data")
        data = await runtime.read("/app/below/f")
        missing = await refused(runtime.read("/tmp/none"))
        await runtime.stop()
        ended = await refused(runtime.run(["true"], {}))
        found.append([result.exit_code, result.stdout, result.stderr, [*data], missing, ended])
    return {"seen": found[0], "same": found[0] == found[1]}


async def runtime_with_a_server():
    """A program behind, and its port."""
    runtime = await started(vm=False)
    await runtime.write("/app/page", b"within")
    await runtime.run_background(["python3", "-m", "http.server", "8000"], {}, "/tmp/log")
    url, text = await runtime.expose(8000), None
    while text is None:
        try:
            with urllib.request.urlopen(f"{url}/page") as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError:
            pass
    await runtime.stop()
    return {"text": text}


async def runtime_without_network():
    runtime = await started(allow=[])
    locked = await refused(runtime.prepare_execution([]))
    told = await runtime._client.get_network(runtime.info.id)
    await runtime.stop()
    return {"locked": locked, "policy": told.policy.allowlist, "applied": told.applied}


async def runtime_with_live_processes():
    runtime = await started()
    process = await runtime.open_process(["sh", "-c", "read x; echo got $x; exit 4"], {})
    await process.write(b"words\n")
    out = b"".join([part async for part in process.stdout])
    other = await runtime.open_process(["sleep", "600"], {})
    await other.terminate()
    codes = [await process.wait(), await other.wait()]
    await runtime.stop()
    return {"out": out.decode(), "codes": codes}


def given():
    """What every environment of the older half is made of."""
    return {"dataset": Dataset.from_list([{"question": "q", "answer": "a"}]), "rubric": vf.Rubric()}


async def state_of(environment):
    state = vf.State({"input": {}, "trajectory": []})
    return await environment.setup_state(state) or state


async def called(environment, state, tool, **words):
    """Have a tool called as a model has it called."""
    words = environment.update_tool_args(tool, words, [], state)
    return await environment.tool_map[tool](**words)


async def shell_environment():
    # From 0.3 on its own default is what the clients that it asks for refuse.
    begun = {"start_command": None} if LIVE else {}
    environment = vf.SandboxEnv(
        **begun,
        docker_image=IMAGE,
        memory_gb=1,
        timeout_per_command_seconds=2,
        environment_vars={"A": "with words"},
        labels=["of-verifiers"],
        **given(),
    )
    state = await state_of(environment)
    said = [
        await called(environment, state, "bash", command="echo $A; echo e >&2; echo kept > /tmp/f"),
        await called(environment, state, "bash", command="cat /tmp/f"),
        await called(environment, state, "bash", command="sleep 600"),
        await called(environment, state, "bash", command="true"),
    ]
    await environment.destroy_sandbox(state)
    ended = await refused(called(environment, state, "bash", command="true"))
    others = [await state_of(environment) for _ in range(2)]
    many = len(environment.active_sandboxes)
    await environment.teardown_sandboxes()
    gone = [await refused(called(environment, one, "bash", command="true")) for one in others]
    left = len(environment.active_sandboxes)
    await environment.teardown_sandbox_client()
    return {"said": said, "ended": ended, "many": many, "left": left, "gone": gone}


async def python_environment():
    environment = vf.PythonEnv(pip_install_packages="", **given())
    state = await state_of(environment)
    said = [
        await called(environment, state, "python", code=code) for code in ("x = 20", "print('out')\nx + 1", "1 / 0")
    ]
    await environment.destroy_sandbox(state)
    await environment.teardown_sandbox_client()
    return {"said": [*said[:2], said[2].splitlines()[-1]]}


CASES = [
    *([runtime_of_either_generation, runtime_with_a_server] if RUNTIME else []),
    *([runtime_without_network, runtime_with_live_processes] if LIVE else []),
    shell_environment,
    *([] if LIVE else [python_environment]),
]


async def main():
    for case in CASES:
        try:
            told = {"case": case.__name__, "saw": await case()}
        except Exception as error:  # what a user would see
            told = {"case": case.__name__, "error": [type(error).__name__, str(error), repr(error.__cause__)]}
        print(json.dumps(told), flush=True)


asyncio.run(main())
