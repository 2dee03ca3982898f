"""What tinker-cookbook's client sees; prints a line of JSON for each case."""

import asyncio
import json

from tinker_cookbook.sandbox import SandboxFusionClient


async def ran():
    client = SandboxFusionClient()
    found = []
    for code in ("print(open('data').read())", "raise SystemExit(3)", "while True: pass"):
        good, told = await client.run(code, {"data": "content"}, timeout=2)
        found.append([good, told["status"], told["run_result"]["status"], told["run_result"]["stdout"]])
    await client.close()
    return found


async def refused():
    good, told = await SandboxFusionClient().run("1", {}, timeout=2, language="swift")
    return [good, "HTTP 422" in told["error"]]


async def main() -> None:
    for case in (ran, refused):
        try:
            line = {"case": case.__name__, "saw": await case()}
        except Exception as error:
            line = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(line), flush=True)


asyncio.run(main())
