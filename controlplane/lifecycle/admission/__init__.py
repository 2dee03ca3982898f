"""Letting sandboxes in: quotas, the queue of creates that wait for room, claims of warm sandboxes and cold starts."""
