"""What the control plane's ways to a sandbox answer: the real clients on a real sandbox and the fakes pass these."""

from dataclasses import dataclass
from typing import Protocol

import pytest

from controlplane.cluster import Gateways, Sidecars
from controlplane.errors import Problem


@dataclass(frozen=True)
class Up:
    """A sidecar that answers, and an address behind which nobody is."""

    sidecars: Sidecars
    sandbox_id: str
    address: str
    token: str
    gone: str


class SidecarsSuite:
    """The conformance suite of ``Sidecars``."""

    async def test_a_sidecar_says_whose_it_is_and_how_it_is(self, up: Up) -> None:
        health = await up.sidecars.health(up.address, up.token)
        assert health.sandbox_id == up.sandbox_id
        assert health.kernel
        assert health.uptime_ms >= 0
        assert (health.quiet_ms is None or health.quiet_ms >= 0, health.running_execs) == (True, 0)

    async def test_where_nobody_is_calls_fail_as_unreachable(self, up: Up) -> None:
        with pytest.raises(Problem) as caught:
            await up.sidecars.health(up.gone, up.token)
        assert caught.value.code == "sandbox_unreachable"


class Reached(Protocol):
    """A sandbox that can be made silent, and the ways to it."""

    @property
    def sandbox_id(self) -> str:
        """The sandbox."""
        ...

    @property
    def token(self) -> str:
        """A token for it."""
        ...

    @property
    def gateways(self) -> Gateways:
        """Gateways that are there."""
        ...

    @property
    def away(self) -> Gateways:
        """Gateways that are not."""
        ...

    async def silence(self) -> None:
        """From now on its sidecar answers nothing."""
        ...


class GatewaysSuite:
    """The conformance suite of ``Gateways``."""

    async def test_a_gateway_tells_who_answers_from_who_does_not(self, reached: Reached) -> None:
        assert await reached.gateways.reaches(reached.sandbox_id, reached.token) is True
        await reached.silence()
        assert await reached.gateways.reaches(reached.sandbox_id, reached.token) is False

    async def test_where_no_gateway_answers_nothing_is_said(self, reached: Reached) -> None:
        assert await reached.away.reaches(reached.sandbox_id, reached.token) is None
