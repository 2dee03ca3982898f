"""Webhooks: endpoints, signatures, what an answer means, and which events are sent when. Pure."""

from controlplane.webhooks.answers import Answer, judged
from controlplane.webhooks.endpoint import Endpoint, EndpointSpec, WebhookOptions, read_endpoints
from controlplane.webhooks.letters import Batch, Dead, Letter, WhyDead
from controlplane.webhooks.outbox import Outbox
from controlplane.webhooks.poster import Poster
from controlplane.webhooks.signing import read_keys, signed

__all__ = [
    "Answer",
    "Batch",
    "Dead",
    "Endpoint",
    "EndpointSpec",
    "Letter",
    "Outbox",
    "Poster",
    "WebhookOptions",
    "WhyDead",
    "judged",
    "read_endpoints",
    "read_keys",
    "signed",
]
