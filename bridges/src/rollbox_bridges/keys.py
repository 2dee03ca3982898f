"""Which owner of rollbox a client's key stands for. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def owner_key(client_key: str, keys: Mapping[str, str]) -> str | None:
    """Return the owner's key that a client's key stands for; None: there is none.

    Args:
        client_key: what the client has sent.
        keys: a client's key -> an owner's key; empty: they are the same.
    """
    if keys:
        return keys.get(client_key)
    return client_key if client_key and all("!" <= letter <= "~" for letter in client_key) else None
