"""One package per wire; each loads on first use.

A wire is four small files: ``types`` (what the wire carries), ``serialize`` (request to body),
``translate`` (events to chunks) and ``adapter`` (configuration, endpoint, models).
"""
