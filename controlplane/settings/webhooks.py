"""Settings of webhooks: the endpoints, with what signs in a file of each."""

from pathlib import Path

from controlplane.settings.reader import Reader
from controlplane.webhooks import Endpoint, EndpointSpec, read_endpoints, read_keys


def read_webhooks(read: Reader) -> tuple[Endpoint, ...]:
    """Reads them; none: events are posted nowhere.

    Raises:
        SettingError: they are none, or a file has no key; it has nothing of URLs and keys.
    """
    return read.secret("WEBHOOKS", webhooks) if read.has("WEBHOOKS") else ()


def webhooks(text: str) -> tuple[Endpoint, ...]:
    """A JSON list of endpoints, and the keys in their files.

    Raises:
        ValueError: it is none, or a file has no key; the message is the rule.
    """
    return tuple(Endpoint.of(one, _keys(one)) for one in read_endpoints(text))


def _keys(spec: EndpointSpec) -> tuple[bytes, ...]:
    try:
        return read_keys(Path(spec.secret_file).read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise ValueError(f"{spec.name}: secret_file cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{spec.name}: {error}") from error
