"""What a create may have to wait for: its owner's quota, room on a node, a start slot."""
