import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "AWaVO"
author = "The AWaVO team"
release = metadata.version("awavo")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "offline"]
html_math_renderer = "mathml"
default_role = "literal"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "AWaVO"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
exclude_patterns = ["_build", "_ext", "*_results.md"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
