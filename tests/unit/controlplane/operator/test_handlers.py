"""What Kopf is told to do: to watch, and nothing that would write to a sandbox's pod."""

from unittest.mock import AsyncMock

from kubernetes_asyncio.client import Configuration

from controlplane.cluster.kubernetes.api_server.access import Access
from controlplane.operator.handlers import connection, options, registry


async def test_only_events_are_handled() -> None:
    way = Access("https://api", None, None, Configuration())
    made = registry(way, AsyncMock())
    watched = {str(one.selector) for one in made._watching.get_all_handlers()}
    assert len(watched) == 1
    # Deletion handlers, timers and daemons put Kopf's finalizer on every object; change handlers its annotations.
    assert not made._changing.get_all_handlers()
    assert not made._spawning.get_all_handlers()


async def test_the_credential_is_handed_over_without_its_scheme() -> None:
    configuration = Configuration()
    configuration.api_key["BearerToken"] = "Bearer abc"
    configuration.ssl_ca_cert = "/ca.pem"
    made = await connection(Access("https://api", None, None, configuration))
    assert (made.server, made.scheme, made.token, made.ca_path) == ("https://api", "Bearer", "abc", "/ca.pem")
    assert made.insecure is False


def test_kopf_writes_no_events_and_looks_for_no_kinds() -> None:
    made = options()
    assert made.posting.enabled is False
    assert made.scanning.disabled is True
