"""The checks of ``rollbox doctor --cluster``; nothing of a running control plane is here."""
