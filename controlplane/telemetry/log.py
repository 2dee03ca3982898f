"""Configures logging: JSON on stderr, or coloured text when stderr is a terminal."""

import logging
import sys

import structlog
from structlog.typing import Processor


def configure_log(level: str = "info") -> None:
    """Configures structlog for this process; log lines go to stderr, stdout is for data."""
    # Not structlog's default traceback: it prints local variables, and some hold secrets.
    people: list[Processor] = [
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback, repr_native_str=True)
    ]
    machines: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(people if sys.stderr.isatty() else machines),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
