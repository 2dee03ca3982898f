"""``python -m controlplane``: runs one control plane, configured by environment variables (see ``settings``)."""

import gc
import os
from typing import Final

import structlog
import uvloop

from controlplane.api.serve import serving
from controlplane.api.stop import stop_signal
from controlplane.errors import Problem
from controlplane.settings import EXIT_CONFIG, SettingError, Settings
from controlplane.telemetry import complain, configure_log

# Reference cycles are rare here, and a burst of creates keeps many objects alive: with Python's default thresholds the
# creates of a burst wait for garbage collections.
GC_THRESHOLDS: Final = (10_000, 50, 50)


def _spare_pauses() -> None:
    """Exempts objects that live as long as the process (modules, models, routes) from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _run(settings: Settings) -> None:
    log = structlog.get_logger("controlplane")
    with stop_signal() as stop:
        async with serving(settings) as service:
            _spare_pauses()
            log.info("serving", api=str(settings.api), ready=str(settings.ready), routes=str(settings.routes))
            await stop.wait()
            log.info("stopping; sandboxes keep running, other replicas or the next start manage them")
            await service.drain(delete=False)


def main() -> int:
    """Runs until SIGTERM or SIGINT.

    Returns:
        The exit status: 0; 64 for a bad setting; 1 when the cluster, the store or a listen address is unavailable.
    """
    configure_log()
    status = 0
    try:
        settings = Settings.from_environment(os.environ)
        uvloop.run(_run(settings))
    # Errors from task groups arrive as exception groups.
    except* SettingError as group:
        complain("controlplane", group)
        status = EXIT_CONFIG
    except* (Problem, OSError) as group:
        complain("controlplane", group)
        status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
