"""The vocabulary: values without I/O that every other floor speaks in."""
