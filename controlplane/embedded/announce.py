"""The output of ``rollbox up`` when it is ready."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Final

from controlplane.cluster import Description
from controlplane.embedded.engines import Engine
from controlplane.embedded.options import UpOptions, default_state_dir
from controlplane.embedded.up_error import UpError

ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - only compared


def announce(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> None:
    """Prints address, key and isolation: one line of JSON on stdout, or text for people.

    Args:
        options: of ``rollbox up``; ``json`` chooses the form.
        url: of the gateway.
        api_key: of the only owner.
        what: isolation and limits of this machine.
        engine: that runs the sandboxes.

    Raises:
        UpError: stdout does not take it.
    """
    text = _line(options, url, api_key, what, engine) if options.json else _words(options, url, api_key, what, engine)
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        trouble = f"the standard output cannot be written: {error.strerror}"
        raise UpError(trouble, "The address and the key are printed there.") from error


def _line(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> str:
    return json.dumps(
        {
            "url": url,
            **({} if options.tls_listen is None else {"tls_url": _elsewhere(options, url)}),
            "api_key": api_key,
            "state_dir": str(options.state_dir),
            "backend": what.backend,
            "engine": {"name": what.engine_name, "version": what.engine_version, "url": engine.url},
            "isolation": what.isolation,
            "isolation_detail": what.isolation_detail,
            "network": what.network,
            "egress": options.egress,
        }
    )


def _words(options: UpOptions, url: str, api_key: str, what: Description, engine: Engine) -> str:
    return f"""rollbox is ready.

  address     {url}{_over_tls(options, url)}
  key         {api_key}
  engine      {what.engine_name} {what.engine_version} ({engine.origin})
  isolation   {what.isolation_detail}
  network     {_network(options)}
  state       {options.state_dir}

{_found(options.state_dir)}
Elsewhere they find them by:
  export ROLLBOX_URL={_elsewhere(options, url)} ROLLBOX_API_KEY={api_key}

Next: rollbox create IMAGE, rollbox exec ID -- COMMAND, rollbox ps.
Ctrl-C {"stops it; sandboxes run on" if options.keep else "stops it and deletes all sandboxes"}."""


def _over_tls(options: UpOptions, url: str) -> str:
    return "" if options.tls_listen is None else f", with TLS {_elsewhere(options, url)}"


def _elsewhere(options: UpOptions, url: str) -> str:
    """The address for other machines: of this one's name, where it is any of its addresses."""
    listen = options.tls_listen or options.listen
    if listen.host not in ANY and options.tls_listen is None:
        return url
    host = socket.gethostname() if listen.host in ANY else listen.host
    return f"{'http' if options.tls_listen is None else 'https'}://{f'[{host}]' if ':' in host else host}:{listen.port}"


def _network(options: UpOptions) -> str:
    asks = ", and reach what a policy allows (rollbox egress --help)"
    return f"sandboxes are offline{asks if options.egress else ''}"


def _found(state_dir: Path) -> str:
    if state_dir == default_state_dir(os.environ):
        return "The CLI and the SDK of this user on this machine find address and key by themselves."
    who = "The CLI and the SDK of this user on this machine"
    return f"{who} find address and key by:\n  export ROLLBOX_STATE_DIR={state_dir}"
