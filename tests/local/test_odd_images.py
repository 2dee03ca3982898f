"""Odd images run on an engine, or are refused for what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, SandboxError
from tests.support.odd_images import PROGRAM, OddImage, archive, program, provided

# The most that the kernel's overlay takes, by Docker's rule, and what the control plane refuses above.
MOST_LAYERS = 127
FAILS = {"Entrypoint": ["/no/such/entrypoint"], "Cmd": ["no", "such"]}


def of_layers(count: int) -> OddImage:
    """The program, and one file in each further layer."""
    return OddImage([program(), *(archive({f"f/{number}": f"{number}".encode()}) for number in range(count - 1))])


RUN: dict[str, Callable[[], OddImage]] = {
    "one program, without shell, users and folders": lambda: OddImage([program()]),
    "an entrypoint that fails": lambda: OddImage([program()], FAILS),
    "a layer that is an empty archive": lambda: OddImage([program(), archive({})]),
    "a layer of zero bytes": lambda: OddImage([b"", program(), b""]),
    "as many layers as there may be": lambda: of_layers(MOST_LAYERS),
    "a user without a name": lambda: OddImage([program()], {"User": "1234:4321", "WorkingDir": "/no/such/folder"}),
}


async def probed(sandbox: Sandbox) -> None:
    result = await sandbox.exec([PROGRAM, "--probe"])
    assert (result.end, result.exit_code) == ("exited", 0), result


@pytest.mark.parametrize("what", RUN)
async def test_it_runs(client: Client, tmp_path: Path, what: str) -> None:
    image = RUN[what]()
    async with provided(image, tmp_path) as name, await client.create(name, memory="128Mi") as sandbox:
        await probed(sandbox)
        with pytest.raises(InvalidArgument, match="shell") as refused:
            await sandbox.exec(f"{PROGRAM} --probe")
        assert refused.value.details["reason"] == "command_not_found"
        for number in range(len(image.layers) - 1 if what.startswith("as many") else 0):
            assert await sandbox.files.read(f"/f/{number}") == str(number).encode()


async def test_a_user_that_the_image_does_not_know_is_refused_and_told(client: Client, tmp_path: Path) -> None:
    async with provided(OddImage([program()], {"User": "nobody"}), tmp_path) as name:
        with pytest.raises(SandboxError, match="nobody") as refused:
            await client.create(name, memory="128Mi", start_timeout=60)
        print(refused.value.code, refused.value.detail)
        assert refused.value.code == "unsupported"
