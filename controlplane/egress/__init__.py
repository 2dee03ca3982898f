"""Network policies of sandboxes: what owners and operators write, presets, the rules that follow. Pure."""

from controlplane.egress.attempts import OF_REPLICAS, EgressAttempt, EgressVerdict, read_attempt
from controlplane.egress.binding import UNBOUND, Binding, load_binding, read_fact
from controlplane.egress.compiled import OFFLINE, OFFLINE_NAME, Compiled, CompiledRule, read_compiled
from controlplane.egress.compiling import compiled
from controlplane.egress.direct import NO_NETWORKS, DirectNetwork, DirectNetworks, read_networks
from controlplane.egress.limits import NO_LIMITS, OwnerLimits
from controlplane.egress.package_variables import package_variables
from controlplane.egress.policy import (
    MOST_RULES,
    NAME,
    EgressLimits,
    EgressPolicy,
    EgressRule,
    PolicyOrPreset,
    PresetName,
)
from controlplane.egress.presets import BUILT_IN, CUSTOM, EgressOptions, read_presets
from controlplane.egress.rendezvous import chosen

__all__ = [
    "BUILT_IN",
    "CUSTOM",
    "MOST_RULES",
    "NAME",
    "NO_LIMITS",
    "NO_NETWORKS",
    "OFFLINE",
    "OFFLINE_NAME",
    "OF_REPLICAS",
    "UNBOUND",
    "Binding",
    "Compiled",
    "CompiledRule",
    "DirectNetwork",
    "DirectNetworks",
    "EgressAttempt",
    "EgressLimits",
    "EgressOptions",
    "EgressPolicy",
    "EgressRule",
    "EgressVerdict",
    "OwnerLimits",
    "PolicyOrPreset",
    "PresetName",
    "chosen",
    "compiled",
    "load_binding",
    "package_variables",
    "read_attempt",
    "read_compiled",
    "read_fact",
    "read_networks",
    "read_presets",
]
