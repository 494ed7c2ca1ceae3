"""The adapters against mock servers that others wrote; see the nox session ``interop``."""
