"""The loopback provider: a process of its own that speaks the wires and notes when clients go away."""
