"""What happens to sandboxes, without `await`."""

from __future__ import annotations

from collections.abc import Mapping

from rollbox.events import SandboxEvent
from rollbox.sync.inner import ClientOwner
from rollbox.sync.loop_thread import Iteration


class Events:
    """As `rollbox.Events`: iterate it.

    for event in client.events():
        print(event.sandbox_id, event.kind, event.text)
    """

    def __init__(
        self,
        client: ClientOwner,
        after: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
        every_owner: bool = False,
    ) -> None:
        """Use `Client.events` instead."""
        self.inner = client.inner.events(after, labels=labels, follow=follow, every_owner=every_owner)

    @property
    def cursor(self) -> str | None:
        """Of what was read last; None: nothing has come yet."""
        return self.inner.cursor

    def __iter__(self) -> Iteration[SandboxEvent]:
        return Iteration(aiter(self.inner))
