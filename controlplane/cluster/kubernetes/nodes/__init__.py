"""The nodes that sandboxes may run on: what they have, what is free there, which of them go or are lost."""
