"""Docker's published clients over the bridge, unmodified: what each case sees is what it would see at Docker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.bridges.published import each
from tests.bridges.running import seen_by_docker
from tests.support.images import AGAINST_CLUSTER
from tests.support.stack import Product

CLIENTS: Final = ("docker-7.1.0", "docker-7.2.0")
NOT_HONOURED: Final = [
    "binds",
    "mounts",
    "tmpfs",
    "read only",
    "shared memory",
    "devices",
    "gpus",
    "swap",
    "weights",
    "privileged",
    "capability",
    "security",
    "pid",
    "network",
    "hostname",
    "udp",
    "platform",
    "restart",
]
NOT_SUPPORTED: Final = "what is [refused](#what-is-refused)"
WANTED: Final[dict[str, Any]] = {
    "told": {"ping": True, "api": "1.44", "os": "linux", "networks": ["bridge", "none"], "volumes": []},
    "created": {
        "states": ["created", "running"],
        "name": True,
        "labels": {"a.b/c": "d", "odd label": "kept"},
        "config": ["env", ["X=1", "sleep", "60"], ["K=v"], "/made/deep"],
        "limits": [2**29, 500_000_000, 100],
        "cwd": "/made/deep\n",
        "variable": "v\n",
        "pid": True,
        "by": [True, True],
        "left": 404,
    },
    "ran": {"code": 3, "streams": ["out\n", "err\n"], "text": "h\u00e9\n", "settings": ["1 = 2", "/usr", "root"]},
    "not_started": {"codes": [127, 126, 126], "says": [True, True, True]},
    "streamed": {"seen": ["1\n", "2\n", "3\n"]},
    "big": {"size": 5_000_000, "only": True, "err": None},
    "with_input": {"same": True, "code": 0},
    "terminal": {"size": True, "tty": True},
    "detached": {"running": [True, None], "pid": True, "code": 7},
    "twice": {"again": 409},
    "killed_by_pid": {"code": 143},
    "copied_in": {
        "plain": True,
        "gzip": True,
        "listed": (
            "/in/d 750 0 0 '/in/d'\n"
            "/in/d/file 640 1234 5678 '/in/d/file'\n"
            "/in/d/link 777 0 0 '/in/d/link' -> 'file'\n"
            "/in/zipped 644 0 0 '/in/zipped'\n"
        ),
        "nowhere": 404,
        "file": 400,
        "broken": 400,
        "bzip2": [400, "an archive compressed by bzip2 is not supported by rollbox's bridge: gzip is, and none"],
    },
    "copied_out": {
        "names": ["a", "a/f"],
        "content": "12345",
        "stat": ["a", True],
        "file": [5, 0o755, True],
        "link": ["a", True],
        "missing": 404,
    },
    "large_copy": {"same": True},
    "listed": {
        "running": True,
        "all": True,
        "name": True,
        "status": True,
        "unknown": 400,
        "conflict": 409,
        "badly": 400,
    },
    "stopped": {
        "end": ["exited", 5],
        "exec": 409,
        "files": True,
        "again": 0,
        "running": 409,
        "killed": 137,
        "forced": 137,
    },
    "ended_by_itself": {
        "end": {"StatusCode": 4, "Error": None},
        "state": ["exited", 4],
        "logs": ["out\n", "err\n"],
    },
    "logs": {"all": "1\n2\n3\n4\n", "tail": "3\n4\n", "followed": "4\n5\n", "timestamps": 400},
    "attached": {"came": "got words\n", "end": 0},
    "run": {
        "out": ["err", "out"],
        "failed": [4, "no\n"],
        "removed": 404,
        # The cluster's image has no command of its own, and a container needs one.
        "own_command": "no command specified" if AGAINST_CLUSTER else "",
        "nosuch": 400,
    },
    "images": {
        "here": True,
        "listed": True,
        "pulled": True,
        "get": 404,
        "pull": 404,
        "run": 404,
        "tagged": "ran\n",
        "untagged": 404,
    },
    "committed": {"code": 0, "out": "/made-here\n", "removed": True},
    "built": {
        "said": [True, True],
        "same": True,
        "tags": ["built:1"],
        "config": [["sh", "-c"], ["echo $WORD; pwd; ls"], "/app", {"8000/tcp": {}}],
        "labels": ["image", "image"],
        "label": True,
        "own": [["sh", "-c"], ["WORD=one"], "/app"],
        "of": True,
        "ran": ["one", "/app", "Dockerfile", "kept"],
        "other": "two\n",
        "plain": "kept\n",
        "outside": "k",
        "failed": [True, True],
        "still": "",
        "gone": 404,
    },
    "ports": {"status": 200, "closed": True},
    "refused": {
        "saw": {name: [400, True] for name in NOT_HONOURED},
        "missing": dict.fromkeys(("pause", "cache", "network", "volume", "login"), 501),
        "made": 0,
    },
}


@pytest.fixture(scope="module", params=map(each, CLIENTS))
def saw(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What one client saw in all its cases."""
    return seen_by_docker(stack, request.param, "docker_cases.py")


@pytest.mark.parametrize("case", WANTED)
def test_the_sdk_sees_what_it_would_see_at_docker(
    saw: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "refused":
        not_supported(NOT_SUPPORTED)
    assert saw[case] == WANTED[case]
