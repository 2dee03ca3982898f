"""The asynchronous client behind a client without `await`."""

from __future__ import annotations

from typing import Protocol

import rollbox


class ClientOwner(Protocol):
    """What has an asynchronous client: `rollbox.sync.Client`."""

    inner: rollbox.Client


def inner_of(client: ClientOwner | None) -> rollbox.Client | None:
    """Return the asynchronous client; None, which stands for the shared one, for None."""
    return None if client is None else client.inner
