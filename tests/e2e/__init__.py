"""The chat adapter against a real model in a real server; see the nox session ``e2e``."""
