"""Metrics of the table, as objects of the client library in one registry."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from controlplane.telemetry.table import FAMILIES

# Of each series a second one with the time when it began: they double a scrape, and nothing here reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Families:
    """Makes each metric of the table once, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, *labels: Sequence[str]) -> Counter:
        """A counter of the table; ``labels``: the values of each label, of which all series exist from the start."""
        row = FAMILIES[name]
        made = Counter(name.removesuffix(f"_{row.unit}"), row.help, row.labels, unit=row.unit, registry=self.registry)
        _known(made.labels, labels)
        return made

    def gauge(self, name: str, *labels: Sequence[str]) -> Gauge:
        """See ``counter``."""
        row = FAMILIES[name]
        made = Gauge(name.removesuffix(f"_{row.unit}"), row.help, row.labels, unit=row.unit, registry=self.registry)
        _known(made.labels, labels)
        return made

    def histogram(self, name: str, *labels: Sequence[str]) -> Histogram:
        """See ``counter``."""
        row = FAMILIES[name]
        made = Histogram(
            name.removesuffix(f"_{row.unit}"),
            row.help,
            row.labels,
            unit=row.unit,
            buckets=row.buckets,
            registry=self.registry,
        )
        _known(made.labels, labels)
        return made

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """All of them as text, and its media type: OpenMetrics for who accepts it, else Prometheus' older format."""
        encode, _ = choose_encoder(accept)
        text = bytes(encode(self.registry))
        return text, "application/openmetrics-text; version=1.0.0; charset=utf-8" if _open(text) else MEDIA_TYPE


def _open(text: bytes) -> bool:
    return text.endswith(b"# EOF\n")


def _known(series: Callable[..., object], labels: Sequence[Sequence[str]]) -> None:
    for values in product(*labels) if labels else ():
        series(*values)
