"""Interpreters that stay: cells of code in a sandbox that build on one another."""

from rollbox.interpreter.handle import Interpreter

__all__ = ["Interpreter"]
