"""A new or lost store that holds what it should from now on, as it is."""

from controlplane.store import Store


async def refilled(store: Store) -> None:
    """Rebuild it without adding anything."""
    rebuild = await store.claim_rebuild(60_000)
    assert await store.rebuilt(rebuild.content_id)
