"""API keys that are made while the installation runs: declared in the cluster, as pools and quotas are."""

from controlplane.lifecycle.keys.calls import KeyCalls, MadeKey
from controlplane.lifecycle.keys.declared import DeclaredKey, Refused
from controlplane.lifecycle.keys.stored import StoredKeys

__all__ = ["DeclaredKey", "KeyCalls", "MadeKey", "Refused", "StoredKeys"]
