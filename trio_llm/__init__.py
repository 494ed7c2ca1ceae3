"""Model responses as they arrive, from many providers, under Trio's structured concurrency."""
