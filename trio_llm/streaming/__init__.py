"""The Trio engine: attempts, watchdog, layers and the consumer's stream."""
