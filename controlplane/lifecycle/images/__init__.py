"""Which image runs: a name is resolved to a digest once, and a group or a pool keeps it.

A start asks, before its turn in the queue; a claim does not, and takes what its warm sandbox has. ``resolver`` asks
registries, once for all starts that ask at the same time, and never makes a start wait for a registry that did not
answer lately. ``pins`` decides whom a digest holds for. The truth is in the records: what a group or a pool has already
is looked up there, so it survives replicas and a loss of the store.

``copies`` has an image copied into the private registry, where there is one, before its start takes its turn;
``rights`` asks an image's own registry whether an owner may have it. ``registry_store`` knows whether the private
registry has room, and which copies are used; ``group_uses`` tells it which ones groups have used.

Where a name cannot be resolved, ``auto`` starts the sandbox with its name, as a node understands it, and the record has
no digest; ``required`` refuses it. In both an image that is certain not to run is refused before anything is started.

``recordings`` runs commands in sandboxes of their owners, and makes recorded copies of what these opened;
``recorded_share`` refuses those of an owner that has as many as it may. ``external_copies`` knows which of them a
registry has that somebody else looks after, and when they were used.
``ownership`` says whose an image is, ``configs`` what it says of its processes, and ``inventory`` which ones the nodes
have.
"""

from controlplane.lifecycle.images.configs import Configs
from controlplane.lifecycle.images.conversion_queue import Conversion
from controlplane.lifecycle.images.conversions import Conversions
from controlplane.lifecycle.images.copies import Copies, Copy
from controlplane.lifecycle.images.external_copies import ExternalCopies
from controlplane.lifecycle.images.group_uses import GroupUses
from controlplane.lifecycle.images.inventory import ImageProgress, Inventory
from controlplane.lifecycle.images.lazily import LazyStarts
from controlplane.lifecycle.images.mirrored import Mirrored
from controlplane.lifecycle.images.ownership import Ownership
from controlplane.lifecycle.images.pins import Images, Pin
from controlplane.lifecycle.images.progress import ConversionProgress
from controlplane.lifecycle.images.recorded_share import RecordedShare
from controlplane.lifecycle.images.recordings import Recordings, RecordWish, Run
from controlplane.lifecycle.images.registry_store import RegistryStore
from controlplane.lifecycle.images.rights import Rights

__all__ = [
    "Configs",
    "Conversion",
    "ConversionProgress",
    "Conversions",
    "Copies",
    "Copy",
    "ExternalCopies",
    "GroupUses",
    "ImageProgress",
    "Images",
    "Inventory",
    "LazyStarts",
    "Mirrored",
    "Ownership",
    "Pin",
    "RecordWish",
    "RecordedShare",
    "Recordings",
    "RegistryStore",
    "Rights",
    "Run",
]
