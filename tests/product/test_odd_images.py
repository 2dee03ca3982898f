"""Odd images run on an engine and on a cluster alike, or are refused for what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, SandboxError
from tests.support.installed import own_cluster
from tests.support.odd_images import ON_CLUSTER, PROGRAM, OddImage, archive, program, provided

pytestmark = pytest.mark.skipif(ON_CLUSTER and not own_cluster(), reason="there is no registry for such images")
# The most that the kernel's overlay takes, by Docker's rule, and what the control plane refuses above.
MOST_LAYERS = 127
FAILS = {"Entrypoint": ["/no/such/entrypoint"], "Cmd": ["no", "such"]}
NAMELESS = {"User": "1234:4321", "WorkingDir": "/no/such/folder"}


def of_layers(count: int) -> list[bytes]:
    """The program, and one file in each further layer."""
    return [program(), *(archive({f"f/{number}": f"{number}".encode()}) for number in range(count - 1))]


EACH: dict[str, Callable[[], OddImage]] = {
    "one program, without shell, users and folders": lambda: OddImage([program()]),
    "an entrypoint that fails": lambda: OddImage([program()], FAILS),
    "a layer that is an empty archive": lambda: OddImage([program(), archive({})]),
    "a layer of zero bytes": lambda: OddImage([b"", program(), b""]),
    "as many layers as there may be": lambda: OddImage(of_layers(MOST_LAYERS)),
    "a user without a name": lambda: OddImage([program()], NAMELESS),
}
# A pod for each takes a cluster half a minute. containerd takes no layer of zero bytes; the engines do.
AT_ONCE: dict[str, Callable[[], OddImage]] = {
    "all of it": lambda: OddImage([*of_layers(MOST_LAYERS - 1), archive({})], {**FAILS, **NAMELESS})
}
FILES = {"as many layers as there may be": MOST_LAYERS - 1, "all of it": MOST_LAYERS - 2}
RUN = AT_ONCE if ON_CLUSTER else EACH


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
        for number in range(FILES.get(what, 0)):
            assert await sandbox.files.read(f"/f/{number}") == str(number).encode()


REFUSED: dict[str, tuple[Callable[[], OddImage], str]] = {
    "a user that it does not know": (lambda: OddImage([program()], {"User": "nobody"}), "passwd"),
    "a layer of zero bytes": (lambda: OddImage([program(), b""]), "zero bytes"),
}


@pytest.mark.parametrize("what", [one for one in REFUSED if ON_CLUSTER or one not in EACH])
async def test_it_is_refused_and_told(client: Client, tmp_path: Path, what: str) -> None:
    image, words = REFUSED[what]
    async with provided(image(), tmp_path) as name:
        with pytest.raises(SandboxError, match=words) as refused:
            await client.create(name, memory="128Mi", start_timeout=60)
        print(refused.value.code, refused.value.detail)
        assert (refused.value.code, refused.value.fault) == ("unsupported", "caller")
