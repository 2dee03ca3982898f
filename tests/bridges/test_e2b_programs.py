"""Programs that know E2B alone, unmodified, over the bridge: trainers, agents, and clients that insist on HTTPS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.bridges.published import of_client
from tests.bridges.running import bridge, cases, environment, key_of, seen
from tests.bridges.test_interpreter_clients import NOT_SUPPORTED, STYLES, WANTED
from tests.bridges.tunnel import tunnel
from tests.support.authority import Authority
from tests.support.images import IMAGE
from tests.support.stack import Product

OPENAI_AGENTS: Final = "openai-agents-0.24.0"
WANTED_BY_OPENAI_AGENTS: Final[dict[str, Any]] = {
    "agent": {"wrong": True, "right": True, "said": "done"},
    "commands": {"seen": [3, "1\n", "e\n"], "late": True},
    "files": {"data": [*b"\x00data"], "missing": True},
    "terminal": {"says": True},
    "ports": {"tls": False, "said": "hello from within"},
    "kept": {"data": "kept", "other": True},
    "paused": {"says": True},
}
WANTED_BY_AI: Final[dict[str, Any]] = {
    "agent": {"wrong": True, "right": "solved\n", "said": "done"},
    # The words of this client, which leaves those of the bridge out.
    "lost": {"errors": [["SandboxNotFoundError", "Sandbox is probably not running anymore"]]},
}
# No registry has slime's module: this names a folder with a checkout of THUDM/slime, at the commit.
SLIME: Final = "ROLLBOX_TEST_SLIME"
SLIME_COMMIT: Final = "624b824a898ab0ec1fcb4d373004c7f3852bf515"
SLIMES_CLIENTS: Final = ("e2b-2.31.0", "e2b-2.63.0")
WANTED_BY_SLIME: Final[dict[str, Any]] = {
    "commands": {"seen": [3, "1\n/\n", "e\n"], "failed": True, "id": True},
    "files": {"read": ["of the host", "h\u00e9", ""], "size": "2"},
    "detached": {"seen": [0, "/work\n"], "failed": [5, "broken\n"]},
    "user": {"owner": "agent"},
    "ended": {"asked": 1, "words": ["does not exist", "STOPPED state"], "transient": False},
    "no_image": {"asked": 1, "says": True},
    "left": {"left": []},
}
# Below it the interpreter's older client asks for the host names of ports, and by HTTPS alone.
DOMAIN: Final = "sandboxes.test"


@pytest.fixture(scope="module")
def openai_agents(stack: Product, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What openai-agents' own client of E2B saw in all its cases."""

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack) as url:
            environ = {**environment(url, stack.api_key), "HOME": str(tmp_path_factory.mktemp("home"))}
            return await cases(OPENAI_AGENTS, "openai_agents_cases.py", "", environ)

    return asyncio.run(all_cases())


@of_client(OPENAI_AGENTS)
@pytest.mark.parametrize("case", WANTED_BY_OPENAI_AGENTS)
def test_openai_agents_sees_what_it_would_see_at_e2b(
    openai_agents: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "paused":
        not_supported('`on_timeout="pause"` (no sandbox\'s memory is kept)')
    assert openai_agents[case] == WANTED_BY_OPENAI_AGENTS[case]


@pytest.fixture(scope="module")
def ai(stack: Product) -> Mapping[str, Any]:
    """What an agent in JavaScript saw."""
    return seen(stack, "npm", "ai_cases.mjs")


@of_client("ai")
@pytest.mark.parametrize("case", WANTED_BY_AI)
def test_an_agent_in_javascript_solves_its_task(ai: Mapping[str, Any], case: str) -> None:
    assert ai[case] == WANTED_BY_AI[case]


@pytest.fixture(scope="module", params=SLIMES_CLIENTS)
def slime(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What slime's sandbox saw over one of E2B's clients."""
    folder = os.environ.get(SLIME, "")
    if not folder:
        pytest.skip(f"no registry has slime: {SLIME} names a folder with a checkout of THUDM/slime")

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack) as url:
            key = {"SLIME_AGENT_SANDBOX_IMAGE_METADATA_KEY": "rollbox.image"}
            source = str(Path(folder, "slime/agent/sandbox.py"))
            return await cases(request.param, "slime_cases.py", source, {**environment(url, stack.api_key), **key})

    return asyncio.run(all_cases())


@of_client("slime")
@pytest.mark.parametrize("case", WANTED_BY_SLIME)
def test_slimes_sandbox_sees_what_it_would_see_at_e2b(slime: Mapping[str, Any], case: str) -> None:
    assert slime[case] == WANTED_BY_SLIME[case]


@pytest.fixture(scope="module", params=STYLES)
def interpreter(
    stack: Product, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """What the code interpreter's client that openai-agents pins saw, over HTTPS and the names of ports."""
    files = Authority().write(tmp_path_factory.mktemp("tls"), "127.0.0.1", f"*.{DOMAIN}")
    given = ("--tls-certificate", str(files / "tls.crt"), "--tls-key", str(files / "tls.key"), "--domain", DOMAIN)

    async def all_cases() -> Mapping[str, Any]:
        async with bridge(stack, *given) as url:
            at = urlsplit(url)
            assert (at.scheme, at.hostname) == ("https", "127.0.0.1")
            async with tunnel("127.0.0.1", at.port or 0) as proxy:
                told = {"E2B_API_URL": url, "E2B_API_KEY": key_of(stack.api_key), "E2B_DOMAIN": DOMAIN, "IMAGE": IMAGE}
                environ = {**told, "PATH": os.environ["PATH"], "PROXY": proxy, "SSL_CERT_FILE": str(files / "ca.crt")}
                return await cases(OPENAI_AGENTS, "interpreter_cases.py", request.param, environ)

    return asyncio.run(all_cases())


@of_client("e2b-code-interpreter-2.8.1")
@pytest.mark.parametrize("case", WANTED)
def test_the_interpreters_older_client_sees_the_same_over_https(
    interpreter: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "language":
        not_supported(NOT_SUPPORTED)
    assert interpreter[case] == WANTED[case]
