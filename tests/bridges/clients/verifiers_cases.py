"""What verifiers' own runtime of Prime does, a case a function, on one runtime. Run by its own Python.

Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import asyncio
import json
import os

from verifiers.v1.runtimes.prime import PrimeConfig, PrimeRuntime

REGISTRY = os.environ["IMAGE"].rpartition("/")[0]


def made(image=os.environ["IMAGE"], **more):
    return PrimeRuntime(PrimeConfig(image=image, **more), name="case")


async def refused(call):
    """The class of the error of a call."""
    try:
        await call
    except Exception as error:  # what a user would see
        return type(error).__name__
    return "nothing"


async def run(runtime):
    result = await runtime.run(["sh", "-c", "echo $A; pwd; echo e >&2; exit 3"], {"A": "with words"})
    return {"code": result.exit_code, "out": result.stdout, "err": result.stderr}


async def files(runtime):
    await runtime.write("/tmp/f", b"\x00data")
    await runtime.write("below/f", b"more")
    cut = await refused(runtime.read("below/f", max_bytes=2))
    missing = await refused(runtime.read("/tmp/none"))
    return {
        "bytes": [*await runtime.read("/tmp/f")],
        "below": (await runtime.read("/app/below/f")).decode(),
        "bounded": (await runtime.read("below/f", max_bytes=4)).decode(),
        "refused": [cut, missing],
    }


async def live(runtime):
    process = await runtime.open_process(["sh", "-c", "read x; echo got $x; exit 4"], {})
    await process.write(b"words\n")
    out = b"".join([part async for part in process.stdout])
    other = await runtime.open_process(["sleep", "600"], {})
    await other.terminate()
    return {"out": out.decode(), "codes": [await process.wait(), await other.wait()]}


async def background(runtime):
    await runtime.run_background(["sh", "-c", "echo behind"], {}, "/tmp/log")
    while (text := (await runtime.run(["cat", "/tmp/log"], {})).stdout) != "behind\n":
        pass
    return {"log": text}


async def user(runtime):
    nobody = runtime.with_user("nobody")
    await nobody.write("/tmp/of-nobody", b"n")
    owner = await runtime.run(["stat", "-c", "%U", "/tmp/of-nobody"], {})
    return {"runs": (await nobody.run(["id", "-un"], {})).stdout, "owner": owner.stdout}


async def offline(_):
    """A runtime whose agent may reach nothing but what is asked for, which is nothing."""
    runtime = made(allow=[])
    await runtime.start()
    locked = await refused(runtime.prepare_execution([]))
    told = await runtime._client.get_network(runtime.info.id)  # as the runtime itself asks
    await runtime.stop()
    return {"locked": locked, "policy": told.policy.allowlist, "applied": told.applied}


async def no_image(_):
    runtime = made(image=f"{REGISTRY}/no-such-image:1")
    error = await refused(runtime.start())
    await runtime.stop()
    return {"error": error}


async def main():
    runtime = made()
    await runtime.start()
    print(json.dumps({"case": "start", "saw": {"cached": runtime.info.image_cached}}), flush=True)
    for case in (run, files, live, background, user, offline, no_image):
        try:
            told = {"case": case.__name__, "saw": await case(runtime)}
        except Exception as error:  # what a user would see
            told = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(told), flush=True)
    await runtime.stop()
    print(json.dumps({"case": "stop", "saw": await refused(runtime.run(["true"], {}))}), flush=True)


asyncio.run(main())
