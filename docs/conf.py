from importlib import metadata

project = "AWaVO"
author = "The AWaVO team"
release = metadata.version("awavo")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "AWaVO"
html_static_path = ["_static"]
exclude_patterns = ["_build", "*_results.md"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
