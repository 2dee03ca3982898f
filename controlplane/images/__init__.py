"""Image references and manifests, as values: what a name means, where it is pulled from, whether it can run. Pure.

The rules are those of the OCI distribution and image specifications, and of Docker for what these leave open (short
names). No clock, no client: ``controlplane.registry`` asks registries, ``lifecycle.images`` decides what follows.
"""

from controlplane.images.budget import Budget, Removal, RemovalPlan, StoredImage, StoreLimit, plan_removal
from controlplane.images.challenge import Challenge, challenges, token_in
from controlplane.images.checkpoints import Checkpoint
from controlplane.images.commits import built_on, folder, is_foreign, own_reference, target
from controlplane.images.config import ImageConfig
from controlplane.images.copies import (
    MOST_FIRST,
    MOST_FIRST_BYTES,
    Converted,
    Copied,
    Copying,
    Found,
    Recorded,
    in_tags,
    names_a_file,
    whose,
)
from controlplane.images.keyring import Credentials, Keyring
from controlplane.images.manifest import (
    ACCEPTED,
    MAX_LAYERS,
    MAX_MANIFEST_BYTES,
    OWN_BYTES,
    Entry,
    checked_config,
    checked_manifest,
    digest_of,
    entries_for,
    is_index,
    layers_of,
    own_bytes,
)
from controlplane.images.options import ImageOptions, Keyrings, Mirror, Mode, Registry
from controlplane.images.private import COMMITTED, CONVERTED, FORMS, Form, PrivateRegistry
from controlplane.images.recorded import plan_recorded
from controlplane.images.recorded_tags import is_copy, offers, recorded_owner
from controlplane.images.reference import DIGEST, DOCKER_HUB, Reference, names_registry, parse
from controlplane.images.rewrite import Rewrites
from controlplane.images.stored import Collected, Collector, CopyStore, RecordedList, RegistryImage, RegistryRoom

__all__ = [
    "ACCEPTED",
    "COMMITTED",
    "CONVERTED",
    "DIGEST",
    "DOCKER_HUB",
    "FORMS",
    "MAX_LAYERS",
    "MAX_MANIFEST_BYTES",
    "MOST_FIRST",
    "MOST_FIRST_BYTES",
    "OWN_BYTES",
    "Budget",
    "Challenge",
    "Checkpoint",
    "Collected",
    "Collector",
    "Converted",
    "Copied",
    "CopyStore",
    "Copying",
    "Credentials",
    "Entry",
    "Form",
    "Found",
    "ImageConfig",
    "ImageOptions",
    "Keyring",
    "Keyrings",
    "Mirror",
    "Mode",
    "PrivateRegistry",
    "Recorded",
    "RecordedList",
    "Reference",
    "Registry",
    "RegistryImage",
    "RegistryRoom",
    "Removal",
    "RemovalPlan",
    "Rewrites",
    "StoreLimit",
    "StoredImage",
    "built_on",
    "challenges",
    "checked_config",
    "checked_manifest",
    "digest_of",
    "entries_for",
    "folder",
    "in_tags",
    "is_copy",
    "is_foreign",
    "is_index",
    "layers_of",
    "names_a_file",
    "names_registry",
    "offers",
    "own_bytes",
    "own_reference",
    "parse",
    "plan_recorded",
    "plan_removal",
    "recorded_owner",
    "target",
    "token_in",
    "whose",
]
