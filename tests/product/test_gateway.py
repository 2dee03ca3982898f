"""The gateway of an installation passes the suite of all gateways, as the fake of the SDK's tests does."""

import asyncio
from collections.abc import Iterator

import pytest

from rollbox import Client
from tests.contract.gateway_suite import LASTING, GatewaySuite
from tests.support.images import IMAGE
from tests.support.stack import Product


class TestGateway(GatewaySuite):
    """See `GatewaySuite`."""

    @pytest.fixture
    def url(self, stack: Product) -> str:
        return stack.url

    @pytest.fixture
    def api_key(self, stack: Product) -> str:
        return stack.api_key

    @pytest.fixture
    def image(self) -> str:
        return IMAGE


@pytest.fixture(scope="module", autouse=True)
def _ends_what_lasted(stack: Product) -> Iterator[None]:
    """The sandbox that the suite's tests share goes with its last test."""

    async def deleted() -> None:
        async with Client(stack.url, stack.api_key) as client:
            await client.delete(labels={"suite": LASTING})

    yield
    with asyncio.Runner() as runner:
        runner.run(deleted())
