"""Prime's published clients over the bridge, unmodified: what each case sees is what it would see at Prime."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bridges.published import each
from tests.bridges.running import bridge, cases
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.stack import Product

CLIENTS: Final = ("prime-sandboxes-0.2.42", "prime-sandboxes-0.5.1")
STYLES: Final = ("async", "sync")
WANTED: Final[dict[str, Any]] = {
    "created": {
        "told": ["mine", True, ["a b", "c"], "RUNNING", 0.5, 1.0],
        "times": [10, 5],
        "at_once": "RUNNING",
        "listed": True,
    },
    "created_once": {"same": True, "other": ["APIError", True]},
    "unlimited": {"minutes": [10_080, 60]},
    "pages": {
        "first": [2, 3, True],
        "second": [1, False],
        "deleted": [1, 2, []],
        "left": [0, 3],
        "ended": ["TERMINATED"],
    },
    "many_at_once": {"statuses": ["RUNNING"], "all": 3},
    "deleted": {
        "deletes": ["nothing", "nothing"],
        "status": ["TERMINATED", "deleted", True],
        "run": ["SandboxNotRunningError", True],
        "read": "SandboxNotRunningError",
        "files": ["SandboxNotRunningError", "SandboxNotRunningError"],
    },
    "no_image": {"error": "APIError", "says": True},
    "no_such_id": {"get": ["APIError", True], "run": ["APIError", True]},
    "wrong_key": {"error": "UnauthorizedError"},
    "other_version": {"status": 400, "named": True},
    "not_supported": {"says": dict.fromkeys(("networks", "images", "volumes", "ssh"), True), "runs": "on\n"},
    "ran": {"out": "out\n\u00e9", "err": "err\n", "code": 0},
    "failed": {"out": "half\n", "code": 3},
    "signalled": {"code": 137},
    "settings": {"out": ["1-with words", "/usr", "root"]},
    "as_user": {"out": "nobody\n", "missing": ["APIError", True]},
    "no_folder": {"error": "APIError", "says": True},
    "timed_out": {"error": "CommandTimeoutError", "gone": 0},
    "big": {"size": 5_000_000, "only": True},
    "texts": {
        "written": [True, "/tmp/a/b/text", 3],
        "read": "h\u00e9",
        "window": ["\u00e9", 2, 3, 1, True],
        "missing": "SandboxFileNotFoundError",
    },
    "binary": {"same": True, "size": 300_000, "missing": ["APIError", True]},
    "jobs": {"job": [True, 7, "x\n", "e\n"], "open": False, "end": [0, "through\n"], "failed": [1, True]},
    "started": {"logs": "begun 1\ne\n", "none": "", "alive": True},
    "exposed": {"text": "within\n", "listed": [[8000, "web"]], "every": [8000], "tcp": True, "left": 0},
    "network": {"policy": [], "applied": True},
    "processes": {"ran": "newer\n", "out": "got words\ngot more\n", "pid": True, "codes": [143, 137]},
    "checkpoints": {
        "state": "DURABLE",
        "text": "kept\n",
        "listed": True,
        "deleted": True,
        "missing": ["APIError", True],
    },
    # Under gVisor the whole sandbox ends with the command that passes its memory.
    "over_memory": {"error": "SandboxOOMError" if AGAINST_CLUSTER else "nothing"},
}
# What a client has not: the newer one exposes no ports, the older one takes no checkpoints, a synchronous one has no
# processes with input.
OTHERWISE: Final[dict[str, Any]] = {
    "prime-sandboxes-0.5.1": {"exposed": {"older": False}},
    "prime-sandboxes-0.2.42": {"checkpoints": {"older": False}},
    "sync": {"processes": {"sync": True}},
}
# What the table says of the cases in which a client is told that there is no such thing, or has no call for it.
NOT_SUPPORTED: Final = "volumes, networks between sandboxes, SSH, images, TCP ports (501 says what to do instead)"
MISSING: Final = {
    "not_supported": NOT_SUPPORTED,
    "exposed": "ports (it has no calls for them)",
    "checkpoints": "checkpoints (it has no calls for them)",
    "processes": "live processes of the sync client (it has none)",
}


def environment(url: str, key: str, home: Path) -> dict[str, str]:
    """What tells a client where it is; in a home of its own, where it keeps its credentials."""
    told = {"PRIME_API_BASE_URL": url, "PRIME_API_KEY": key, "IMAGE": IMAGE, "HOME": str(home)}
    return {"PATH": os.environ["PATH"], **told}


@pytest.fixture(scope="module", params=[each(client, style) for client in CLIENTS for style in STYLES])
def saw(stack: Product, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What one client saw in all its cases."""
    client, style = request.param
    home = tmp_path_factory.mktemp("home")

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack, protocol="prime") as url:
            return await cases(client, "prime_cases.py", style, environment(url, stack.api_key, home))

    otherwise = {**OTHERWISE[client], **OTHERWISE.get(style, {})}
    return {"otherwise": otherwise, **asyncio.run(all_cases())}


@pytest.mark.parametrize("case", WANTED)
def test_a_published_client_sees_what_it_would_see_at_prime(
    saw: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "not_supported" or case in saw["otherwise"]:
        not_supported(MISSING[case])
    assert saw[case] == {**WANTED, **saw["otherwise"]}[case]
