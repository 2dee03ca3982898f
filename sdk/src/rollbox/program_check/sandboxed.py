"""Creates a sandbox, has it look at what programs may do there, and says what was found."""

from __future__ import annotations

from importlib import resources
from typing import Final

from rollbox.client import Client
from rollbox.egress_check import Found
from rollbox.errors import SandboxError
from rollbox.program_check import judged

TRIES_S: Final = 60.0
TTL_S: Final = 300.0
NAME: Final = "setuid programs and debuggers"
IMAGE: Final = "Give an image with python3 in it (--image)."


async def check(client: Client, image: str) -> list[Found]:
    """ConsoleViews.

    Args:
        client: of an owner.
        image: with python3 in it.

    Cost: a sandbox, and one command in it.
    """
    program = resources.files("rollbox.program_check").joinpath("program.py").read_text()
    try:
        async with await client.create(image, ttl=TTL_S, memory="256Mi") as sandbox:
            answer = await sandbox.exec(["python3", "-c", program], user="root", timeout=TRIES_S)
            told = answer.stdout or f"exit code {answer.exit_code}: {answer.stderr.strip()[-80:]}"
            return [*judged.judged(judged.told(told))]
    except SandboxError as error:
        return [Found(NAME, False, f"not tried, since no sandbox came that far: {error.detail}", error.hint)]
    except ValueError as error:
        return [Found(NAME, False, f"not tried: {error}", IMAGE)]
