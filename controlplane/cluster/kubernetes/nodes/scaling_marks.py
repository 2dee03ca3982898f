"""Labels by which the scaler knows its own again. Pure."""

from typing import Final

# Of a node that the scaler has cordoned: the installation that did.
LEAVING: Final = "rollbox.dev/leaving"
# Of pods that keep room for sandboxes, and give way to them: what they request counts as free.
PLACEHOLDER: Final = "rollbox.dev/placeholder"
