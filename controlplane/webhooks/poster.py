"""What sends requests to endpoints."""

from collections.abc import Mapping
from typing import Protocol

from controlplane.webhooks.answers import Answer
from controlplane.webhooks.endpoint import Endpoint


class Poster(Protocol):
    """Sends requests."""

    async def post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
        """Posts a body; what became of it. Bounded in time; whatever fails on the way is ``later``."""
        ...
