"""E2B's published clients over the bridge, unmodified: what each case sees is what it would see at E2B."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.bridges.published import each, of_client
from tests.bridges.running import seen
from tests.support.stack import Product

CLIENTS: Final = ("e2b-2.31.0", "e2b-2.63.0")
STYLES: Final = ("async", "sync")
WANTED: Final[dict[str, Any]] = {
    "info": {
        "template": "base",
        "metadata": {"k": "v"},
        "state": "running",
        "lives": True,
        "same": True,
        "cpu": 2,
        "running": True,
    },
    "pages": {"sizes": [2, 1], "ids": True, "killed": [True, True, True]},
    "shortened": {"over": True},
    "extended": {"lives": True},
    "killed": {
        "kills": [True, False],
        "running": False,
        "run": "SandboxNotRunningException",
        "read": "SandboxNotRunningException",
        "connect": "SandboxNotFoundException",
        "slime": True,
    },
    "no_image": {"error": "SandboxException", "says": True},
    "other_id": {"connect": "SandboxNotFoundException", "kill": False},
    "missing": {"read": "FileNotFoundException", "list": "FileNotFoundException", "exists": False},
    "connected": {"read": "x"},
    "by_metadata": {"stdout": "here\n"},
    "wrong_key": {"error": "AuthenticationException"},
    "not_supported": {"says": dict.fromkeys(("pause", "memory", "metrics", "start", "fork"), True), "runs": True},
    "snapshots": {"text": "kept", "removed": [True, False]},
    "templates": {
        "name": True,
        "said": True,
        "there": [True, False],
        "seen": 'user\ncopied\na "b"\nnobody\nnobody 640\n',
        "tags": ["stable", "v1"],
        "failed": ["BuildException", True],
        "removed": [204, False],
    },
    "ran": {"out": "out\n\u00e9", "err": "err\n", "code": 0, "error": ""},
    "failed": {"code": 3, "out": "half\n", "error": "exit status 3"},
    "settings": {"out": ["1-with", "/usr", "root"]},
    "no_user": {"error": "AuthenticationException"},
    "no_folder": {"error": "InvalidArgumentException"},
    "timed_out": {"error": "TimeoutException", "over": True},
    "big": {"size": 5_000_000, "only": True},
    "streamed": {"seen": "1\n2\n3\n", "out": "1\n2\n3\n"},
    "with_input": {"out": "got words\n"},
    "signalled": {"listed": True, "killed": True, "again": False, "error": "CommandExitException"},
    "attached": {"out": "got more\n", "pid": True},
    "terminal": {"says": True, "size": True, "end": "nothing"},
    "texts": {"path": "/tmp/a/b/text", "name": "text", "text": "h\u00e9", "bytes": [104, 195, 169]},
    "binary": {"same": True},
    "octets": {"same": True},
    "many": {"paths": ["/tmp/many/0", "/tmp/many/1", "/tmp/many/2"], "read": ["0", "1", "2"]},
    "empty": {"text": ""},
    "directories": {
        "made": [True, False],
        "listed": [["e", "dir"], ["f", "file"], ["link", "file"]],
        "deep": ["/tmp/d/e", "/tmp/d/f", "/tmp/d/link"],
        "info": [5, 0o640, "-rw-r-----", "root", "root", "/tmp/d/f"],
        "moved": "/tmp/d/g",
        "left": False,
    },
    "relative": {"paths": ["/rel/f", "/rel/link", "/rel/f", "/rel/f", "/rel/link", "/rel/g"]},
    "watched": {"created": True},
    "signed": {
        "good": "by address",
        "bad": "401",
        "alone": ["by address", "401"],
        "over": '401 {"code": 401, "message": "signature is already expired"}',
    },
    "ports": {"host": "hello from within", "header": "hello from within"},
}
WANTED_IN_JAVASCRIPT: Final[dict[str, Any]] = {
    "info": {"template": "base", "metadata": {"k": "v"}, "running": True},
    "pages": {"sizes": [2, 1], "killed": [True, True, True]},
    "killed": {"kills": [True, False], "running": False},
    "notSupported": {"says": WANTED["not_supported"]["says"], "running": True},
    "ran": {"stdout": "out\n", "stderr": "err\n", "exitCode": 0},
    "failed": {"typed": True, "code": 3},
    "withInput": {"stdout": "got words\n"},
    "terminal": {"says": True},
    "files": {
        "text": "h\u00e9",
        "made": [True, False],
        "listed": [["a", "file"], ["d", "dir"]],
        "missing": "FileNotFoundError",
        "left": False,
    },
    "watched": {"created": True},
    "templates": {"there": True, "stdout": "copied\nran\n"},
}
# What older clients call otherwise, and do not ask for.
OTHERWISE: Final[dict[str, Any]] = {
    "e2b-2.31.0": {
        "killed": {**WANTED["killed"], "run": "TimeoutException", "read": "TimeoutException"},
        "snapshots": {"says": True},
        "not_supported": {"says": dict.fromkeys(("pause", "memory", "metrics", "start"), True), "runs": True},
    }
}
# What the table says of the cases in which a client is told that there is no such thing, or has no call for it.
NO_MEMORY: Final = "`pause`, `fork`, memory in snapshots, programs at a template's start (no sandbox's memory is kept)"
NOT_SUPPORTED: Final = f"{NO_MEMORY}, metrics (the SDK's `usage` has them)"
MISSING: Final = {
    ("e2b-2.31.0", "not_supported"): NOT_SUPPORTED.replace(" `fork`,", ""),
    ("e2b-2.63.0", "not_supported"): NOT_SUPPORTED,
    ("e2b-2.31.0", "snapshots"): "snapshots of files alone (it asks for memory too)",
}


@pytest.fixture(scope="module", params=[each(client, style) for client in CLIENTS for style in STYLES])
def saw(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What one client saw in all its cases."""
    client, style = request.param
    return {"client": client, **seen(stack, client, "e2b_cases.py", style)}


@pytest.mark.parametrize("case", WANTED)
def test_a_published_client_sees_what_it_would_see_at_e2b(
    saw: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if missing := MISSING.get((saw["client"], case)):
        not_supported(missing)
    assert saw[case] == OTHERWISE.get(saw["client"], {}).get(case, WANTED[case])


@pytest.fixture(scope="module")
def saw_in_javascript(stack: Product) -> Mapping[str, Any]:
    """What the client in JavaScript saw."""
    return seen(stack, "npm", "e2b_cases.mjs")


@of_client("npm")
@pytest.mark.parametrize("case", WANTED_IN_JAVASCRIPT)
def test_the_client_in_javascript_sees_the_same(
    saw_in_javascript: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "notSupported":
        not_supported(NOT_SUPPORTED)
    assert saw_in_javascript[case] == WANTED_IN_JAVASCRIPT[case]
