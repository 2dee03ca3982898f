"""What the client `sandbox-fusion` sees: fusion_cases.py sync|async; prints a line of JSON for each case."""

import asyncio
import base64
import inspect
import json
import os
import sys

import sandbox_fusion as fusion
from sandbox_fusion import GetPromptsRequest, RunCodeRequest, RunJupyterRequest, TestConfig

WITHIN_S = 300
STYLE = sys.argv[1]


async def run(**request):
    call = fusion.run_code if STYLE == "sync" else fusion.run_code_async
    answer = call(RunCodeRequest(**{"language": "python", **request}), max_attempts=1)
    return await answer if inspect.isawaitable(answer) else answer


async def cells(*codes, **request):
    call = fusion.run_jupyter if STYLE == "sync" else fusion.run_jupyter_async
    answer = call(RunJupyterRequest(cells=codes, **request), max_attempts=1)
    return await answer if inspect.isawaitable(answer) else answer


def told(answer):
    result = answer.run_result
    return [answer.status.value, result.status.value, result.return_code, result.stdout]


async def printed():
    return told(await run(code="print(123)"))


async def with_input():
    return told(await run(code="print(int(input()))", stdin="65535"))


async def large_input():
    return told(await run(code="import sys; print(len(sys.stdin.read()))", stdin="x" * 3_000_000))


async def timed_out():
    return told(await run(code="print(1, flush=True)\nwhile True: pass", run_timeout=1))


async def failed():
    answer = await run(code="assert 1 == 2")
    return [*told(answer), "AssertionError" in answer.run_result.stderr]


async def syntax():
    answer = await run(code="int a = 1")
    return [*told(answer), "SyntaxError" in answer.run_result.stderr]


async def signalled():
    return told(await run(code="import os; os.kill(os.getpid(), 9)"))


async def files():
    here = base64.b64encode(b"hello").decode()
    answer = await run(
        code="print(open('a/b/c').read()); open('made', 'w').write('1'); open('/mnt/too', 'w').write('2')",
        files={"a/b/c": here, "nothing": None},
        fetch_files=["made", "/mnt/too", "none", "/dev/zero", "a"],
    )
    return [told(answer), {name: base64.b64decode(text).decode() for name, text in answer.files.items()}]


async def shell():
    return told(await run(code="echo words | tr a-z A-Z; exit 3", language="bash"))


async def apart():
    """What one request leaves behind, in files and in processes, another does not see."""
    code = "import os\nopen('/tmp/left', 'w').write('x')\nif os.fork() == 0:\n    import time; time.sleep(1000)"
    await run(code=code)
    other = "import os; print(os.path.exists('/tmp/left'), len([p for p in os.listdir('/proc') if p.isdigit()]) < 4)"
    return told(await run(code=other))


async def forks():
    """A program that starts more than its sandbox may have has failed, and others go on."""
    bomb = await run(code="import os\nwhile True: os.fork()", run_timeout=3)
    return [bomb.status.value, told(await run(code="print(1)"))]


async def language():
    try:
        await run(code="1", language="kotlin_script")
    except Exception as error:
        return ["422" in str(error), "literal_error" in str(error)]


async def datasets():
    call = fusion.get_prompts if STYLE == "sync" else fusion.get_prompts_async
    asked = GetPromptsRequest(dataset="humaneval_python", config=TestConfig())
    try:
        answer = call(asked, endpoint=os.environ["SANDBOX_FUSION_ENDPOINT"])
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        return ["501" in str(error), "is not supported by rollbox's bridge" in str(error)]


async def notebook():
    answer = await cells("a = 'hello'", "import sys; sys.stderr.write('e')\na", "assert False", "print(a)")
    said = [[cell.stdout, cell.stderr, cell.display, [one["ename"] for one in cell.error]] for cell in answer.cells]
    return [answer.status.value, answer.driver.return_code, said]


async def notebook_files():
    here = base64.b64encode(b"7").decode()
    answer = await cells("open('b', 'w').write(open('a').read() * 2);", files={"a": here}, fetch_files=["b"])
    return [answer.status.value, base64.b64decode(answer.files["b"]).decode()]


async def notebook_timed_out():
    answer = await cells("print(1)", "while True: pass", "print(3)", total_timeout=2)
    return [answer.status.value, answer.driver.status.value, [cell.stdout for cell in answer.cells]]


async def many():
    if STYLE == "sync":
        call = lambda n: fusion.run_code(RunCodeRequest(code=f"print({n})", language="python"), max_attempts=1)  # noqa: E731
        answers = fusion.run_concurrent(call, args=[[n] for n in range(12)])
    else:
        answers = await asyncio.gather(*[run(code=f"print({n})") for n in range(12)])
    return [int(one.run_result.stdout) for one in answers]


CASES = (
    printed,
    with_input,
    large_input,
    timed_out,
    failed,
    syntax,
    signalled,
    files,
    shell,
    apart,
    forks,
    language,
    datasets,
    notebook,
    notebook_files,
    notebook_timed_out,
    many,
)


async def main() -> None:
    for case in CASES:
        try:
            line = {"case": case.__name__, "saw": await asyncio.wait_for(case(), WITHIN_S)}
        except Exception as error:
            line = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(line), flush=True)


asyncio.run(main())
