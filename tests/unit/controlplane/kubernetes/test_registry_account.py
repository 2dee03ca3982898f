"""What the private registry is shown: a token as long as it holds, in virtual time."""

import asyncio
from typing import Any, cast

from yarl import URL

from controlplane.cluster.kubernetes.node_agents.registry_account import MARGIN_S, RegistryAccount
from controlplane.cluster.kubernetes.node_agents.remembered import Remembered

LIVES_S = 300
OFFER = 'Bearer realm="https://tokens.test/token",service="s",scope="repository:a:pull"'


class Account(RegistryAccount):
    """One whose service of tokens answers at once."""

    async def _given(self, realm: URL) -> tuple[str, int]:
        return "given", LIVES_S


async def test_a_token_is_shown_until_shortly_before_its_end() -> None:
    account = Account(cast("Any", None), "u", "p", None, Remembered(8))
    asked = ("GET", "/v2/a/manifests/1")
    assert account.known(*asked).startswith("Basic ")
    assert await account.answer(*asked, [OFFER]) == "Bearer given"
    await asyncio.sleep(LIVES_S - MARGIN_S - 1)
    assert account.known(*asked) == "Bearer given"
    await asyncio.sleep(1)
    assert account.known(*asked).startswith("Basic ")
