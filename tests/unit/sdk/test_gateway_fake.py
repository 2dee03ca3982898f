"""The fake gateway of the SDK's tests passes the suite of all gateways."""

from pathlib import Path

import pytest

from tests.contract.gateway_suite import GatewaySuite
from tests.support.gateway_fake import API_KEY, FakeGateway


class TestFakeGateway(GatewaySuite):
    """See `GatewaySuite`."""

    @pytest.fixture
    def url(self, fake: FakeGateway, tmp_path: Path) -> str:
        fake.files.root = tmp_path
        return fake.url

    @pytest.fixture
    def api_key(self) -> str:
        return API_KEY

    @pytest.fixture
    def image(self) -> str:
        return "python:3.12-slim"
