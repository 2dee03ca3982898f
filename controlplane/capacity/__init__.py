"""Room on nodes: what pods request there, what is free, and what fits. Pure: no clock, no client, no event loop."""

from controlplane.capacity.amounts import NOTHING, ORDER, Amounts, amounts, words
from controlplane.capacity.nodes import Free, NodeRoom, meet
from controlplane.capacity.requests import InitContainer, of_pod
from controlplane.capacity.room import Room
from controlplane.capacity.yielding import Short, rivals, to_end

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
    "meet",
    "of_pod",
    "rivals",
    "to_end",
    "words",
]
