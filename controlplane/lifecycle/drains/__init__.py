"""What follows for sandboxes from a node that is drained."""

from controlplane.lifecycle.drains.drains import Drains

__all__ = ["Drains"]
