"""The registry in memory of the lifecycle's tests passes the suite of the real client."""

from dataclasses import dataclass, field

import pytest

from controlplane.images import Reference, parse
from tests.contract.registry_suite import Ground, RegistrySuite
from tests.support.fake_registry import FakeRegistry, digest


@dataclass
class FakeGround:
    """One image is in it, or none."""

    registry: FakeRegistry = field(default_factory=lambda: FakeRegistry(outcome="absent"))

    def name(self, repository: str) -> Reference:
        return parse(f"registry.example/{repository}:1")

    async def push(self, reference: Reference, mark: str) -> str:
        self.registry.outcome, self.registry.content = None, mark
        return digest(mark)

    async def push_foreign(self, reference: Reference) -> str:
        self.registry.refused = "it is for s390x"
        return await self.push(reference, "foreign")


class TestFakeRegistry(RegistrySuite):
    """See `RegistrySuite`."""

    @pytest.fixture
    def ground(self) -> Ground:
        return FakeGround()
