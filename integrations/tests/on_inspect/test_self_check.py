"""inspect's own conformance tests, all of those that the installed version has."""

from inspect_ai.util._sandbox.self_check import *  # noqa: F403
