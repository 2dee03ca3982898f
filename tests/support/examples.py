"""How many examples a property test tries."""

import os

# `make fuzz` asks for many.
VARIABLE = "ROLLBOX_TEST_EXAMPLES"
QUICK = 50
EXAMPLES = int(os.environ.get(VARIABLE) or QUICK)
