"""The gateway of an installation passes the suite of all gateways, as the fake of the SDK's tests does."""

import pytest

from tests.contract.gateway_suite import GatewaySuite
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
