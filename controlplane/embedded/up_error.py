"""The error that ends ``rollbox up``."""


class UpError(Exception):
    """Ends ``rollbox up`` with a message for the user.

    Args:
        detail: why it cannot run on this machine.
        fix: what the user should do.
    """

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(f"{detail}\n  {fix}")
        self.detail = detail
        self.fix = fix
