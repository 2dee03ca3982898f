"""Room on nodes: what pods request there, what is free, and what fits. Pure: no clock, no client, no event loop."""

from controlplane.capacity.amounts import NOTHING, ORDER, Amounts, amounts, words
from controlplane.capacity.requests import InitContainer, of_pod
from controlplane.capacity.room import Free, NodeRoom, Room

__all__ = ["NOTHING", "ORDER", "Amounts", "Free", "InitContainer", "NodeRoom", "Room", "amounts", "of_pod", "words"]
