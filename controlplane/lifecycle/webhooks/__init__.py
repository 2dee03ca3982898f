"""Webhooks: events are posted to the operator's endpoints, by one replica, from a cursor on."""

from controlplane.lifecycle.webhooks.dead_letter import DeadLetter
from controlplane.lifecycle.webhooks.webhooks import Webhooks

__all__ = ["DeadLetter", "Webhooks"]
