"""What the wires have in common, without I/O: framing, JSON text, the fold, the codec, history repair."""
