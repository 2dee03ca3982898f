"""What programs meet under gVisor, against the same on an engine: how long they take, and which sizes they see."""
