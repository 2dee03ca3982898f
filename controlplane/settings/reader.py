"""ConsoleViews environment variables up; an error names the variable, its value and the rule that it breaks."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

PREFIX: Final = "ROLLBOX_CONTROLPLANE_"
EXIT_CONFIG: Final = 64

T = TypeVar("T")


class SettingError(Exception):
    """A setting is missing or invalid; the process exits with ``EXIT_CONFIG``."""

    def __init__(self, variable: str, value: str | None, rule: str) -> None:
        shown = "is not set" if value is None else f"is {value!r}"
        super().__init__(f"{variable} {shown}: {rule}")
        self.variable = variable
        self.value = value
        self.rule = rule


class Reader:
    """Looks variables up in ``environ``; ``parse`` is a function that raises ``ValueError`` with the rule's text."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, name: str, parse: Callable[[str], T], default: str | None = None) -> T:
        """The parsed value of a variable, or of its default.

        Raises:
            SettingError: it is missing and has no default, or is invalid.
        """
        text = self._environ.get(PREFIX + name, default)
        if text is None:
            raise SettingError(PREFIX + name, None, "it is required")
        try:
            return parse(text)
        except ValueError as error:
            raise SettingError(PREFIX + name, text, str(error)) from error

    def has(self, name: str) -> bool:
        """Whether the variable is set and not empty."""
        return bool(self._environ.get(PREFIX + name))

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        """As ``__call__``, but None when the variable is not set or empty."""
        return self(name, parse) if self.has(name) else None

    def secret(self, name: str, parse: Callable[[str], T]) -> T:
        """As ``__call__``, but an error does not repeat the value.

        Raises:
            SettingError: it is missing, or not what ``parse`` takes.
        """
        try:
            return self(name, parse)
        except SettingError as error:
            shown = None if error.value is None else "(hidden)"
            raise SettingError(error.variable, shown, error.rule) from None

    def refuse(self, names: tuple[str, ...], rule: str) -> None:
        """Refuses variables that would be ignored.

        Raises:
            SettingError: one of ``names`` is set.
        """
        for name in names:
            if self.has(name):
                raise SettingError(PREFIX + name, self._environ[PREFIX + name], rule)
