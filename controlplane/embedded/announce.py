"""What ``rollbox up`` says when it is ready."""

import json
import sys

from controlplane.cluster import Description
from controlplane.embedded.engines import Engine
from controlplane.embedded.options import UpOptions


def announce(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> None:
    """Prints address, key and isolation: one line of JSON on stdout, or text for people."""
    text = _line(options, url, api_key, what, engine) if options.json else _words(options, url, api_key, what, engine)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _line(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> str:
    return json.dumps(
        {
            "url": url,
            "api_key": api_key,
            "state_dir": str(options.state_dir),
            "backend": what.backend,
            "engine": {"name": what.engine_name, "version": what.engine_version, "url": engine.url},
            "isolation": what.isolation,
            "isolation_detail": what.isolation_detail,
            "network": what.network,
        }
    )


def _words(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> str:
    return f"""rollbox is ready.

  address     {url}
  key         {api_key}
  engine      {what.engine_name} {what.engine_version} ({engine.origin})
  isolation   {what.isolation_detail}
  network     sandboxes are offline
  state       {options.state_dir}

The CLI and the SDK of this user on this machine find address and key by themselves. Elsewhere:
  export ROLLBOX_URL={url} ROLLBOX_API_KEY={api_key}

Ctrl-C {"stops it; sandboxes run on" if options.keep else "stops it and deletes all sandboxes"}."""
