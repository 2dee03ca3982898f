"""What a user does with E2B's code interpreter, a case a function; as `e2b_cases.py`."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys

import e2b_code_interpreter as interpreter

STYLE = sys.argv[1]
Sandbox = interpreter.AsyncSandbox if STYLE == "async" else interpreter.Sandbox
WITHIN_S = 300


async def of(value):
    return await value if inspect.isawaitable(value) else value


async def value(sandbox):
    await of(sandbox.run_code("x = 6"))
    ran = await of(sandbox.run_code("print('working')\nx * 7"))
    return {"text": ran.text, "stdout": ran.logs.stdout, "main": [one.is_main_result for one in ran.results]}


async def raised(sandbox):
    ran = await of(sandbox.run_code("1 / 0"))
    return {"name": ran.error.name, "value": ran.error.value, "says": "ZeroDivisionError" in ran.error.traceback}


async def text(sandbox):
    ran = await of(sandbox.run_code("'quoted \\u2028 \\u00e9'"))
    return {"text": ran.text}


async def shown(sandbox):
    code = "class H:\n    def _repr_html_(self): return '<b>x</b>'\ndisplay(H())\nH()"
    ran = await of(sandbox.run_code(code))
    return {"html": [one.html for one in ran.results], "main": [one.is_main_result for one in ran.results]}


async def streams(sandbox):
    seen = {"out": [], "err": []}
    await of(
        sandbox.run_code(
            "import sys\nprint('o')\nprint('e', file=sys.stderr)",
            on_stdout=lambda line: seen["out"].append(line.line),
            on_stderr=lambda line: seen["err"].append(line.line),
        )
    )
    return {name: "".join(parts) for name, parts in seen.items()}


async def variables(sandbox):
    ran = await of(sandbox.run_code("import os; os.environ['ONLY']", envs={"ONLY": "here"}))
    after = await of(sandbox.run_code("os.environ.get('ONLY')"))
    return {"text": ran.text, "after": after.text}


async def contexts(sandbox):
    mine = await of(sandbox.create_code_context(cwd="/usr"))
    where = await of(sandbox.run_code("import os; os.getcwd()", context=mine))
    apart = await of(sandbox.run_code("x", context=mine))
    listed = [one.id for one in await of(sandbox.list_code_contexts())]
    await of(sandbox.restart_code_context(mine))
    gone = await of(sandbox.run_code("os", context=mine))
    await of(sandbox.remove_code_context(mine))
    return {
        "where": where.text,
        "apart": apart.error.name,
        "listed": mine.id in listed,
        "restarted": gone.error.name,
        "removed": mine.id not in [one.id for one in await of(sandbox.list_code_contexts())],
    }


async def interrupted(sandbox):
    """A caller that gives up interrupts its cell; the variables stay."""
    try:
        await of(sandbox.run_code("kept = 5\nwhile True: pass", timeout=1))
    except Exception as error:
        name = type(error).__name__
    ran = await of(sandbox.run_code("kept"))
    return {"error": name, "text": ran.text}


async def language(sandbox):
    says = {}
    for name in ("r", "java", "bash"):
        try:
            says[name] = await of(sandbox.run_code("1", language=name)) and False
        except Exception as error:
            says[name] = "not supported" in str(error)
    return {"says": says}


async def crashed(sandbox):
    ran = await of(sandbox.run_code("import os; os._exit(3)"))
    again = await of(sandbox.run_code("1 + 1"))
    return {"error": ran.error.name, "again": again.text}


CASES = (value, raised, text, shown, streams, variables, contexts, interrupted, language, crashed)


async def main() -> None:
    # A name of every sandbox, which tests have no DNS for.
    proxy = {"proxy": os.environ["PROXY"]} if "PROXY" in os.environ else {}
    sandbox = await of(Sandbox.create(timeout=3600, **proxy))
    for case in CASES:
        try:
            told = {"case": case.__name__, "saw": await asyncio.wait_for(case(sandbox), WITHIN_S)}
        except Exception as error:
            told = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(told), flush=True)
    await of(sandbox.kill())


asyncio.run(main())
