"""The wires between which conversations move; each is described by one module."""
