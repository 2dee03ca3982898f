"""``python -m controlplane``: one control plane, set up by the environment (see ``settings``)."""

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

# Cycles are rare here, what lives through a herd of creates is not: with the default a herd waits for the collector.
GC_THRESHOLDS: Final = (10_000, 50, 50)


def _spare_pauses() -> None:
    """Keeps the collector away from what stays for good: modules, models, routes."""
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
            log.info("stopping; sandboxes run on, at other replicas or adopted at the next start")
            await service.drain(delete=False)


def main() -> int:
    """Runs until SIGTERM; exit status 0, 64 for a bad setting, 1 when cluster, store or an address cannot be had."""
    configure_log()
    status = 0
    try:
        settings = Settings.from_environment(os.environ)
        uvloop.run(_run(settings))
    # What runs in task groups fails in groups.
    except* SettingError as group:
        complain("controlplane", group)
        status = EXIT_CONFIG
    except* (Problem, OSError) as group:
        complain("controlplane", group)
        status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
