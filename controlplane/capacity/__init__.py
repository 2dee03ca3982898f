"""Room on nodes: what pods request there, what is free, and what fits. Pure: no clock, no client, no event loop."""

from controlplane.capacity.amounts import NOTHING, ORDER, Amounts, amounts, words
from controlplane.capacity.nodes import Free, NodeRoom
from controlplane.capacity.requests import InitContainer, of_pod
from controlplane.capacity.room import Room
from controlplane.capacity.yielding import Short, to_end

__all__ = [
    "NOTHING",
    "ORDER",
    "Amounts",
    "Free",
    "InitContainer",
    "NodeRoom",
    "Room",
    "Short",
    "amounts",
    "of_pod",
    "to_end",
    "words",
]
