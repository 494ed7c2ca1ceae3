"""Sphinx's settings."""

from importlib.metadata import version as version_of

project = "trio_llm"
author = "the trio_llm authors"
copyright = author  # Sphinx's name for it
release = version_of("trio-llm")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib_trio",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"trio_llm {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_ivar = True

# Many classes have a `type`, and Sphinx wonders which one an annotation's `type[...]` means.
suppress_warnings = ["ref.python"]
