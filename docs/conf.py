"""Settings of Sphinx for the documentation site. CONTRIBUTING.md has the command that builds it.

The build needs no network: no page loads a font, a script or a style from another place. These folders of `docs` are
generated: `gallery`, `results`, `reference/encodings`, `reference/tasks`, `reference/commands`, `reference/python/api`,
`development/from_repository`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import gallery  # noqa: E402

import fastpe  # noqa: E402

project, author, copyright = "fastpe", "The fastpe authors", "The fastpe authors, MIT licence"
version = release = fastpe.__version__

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "numpydoc", "myst_parser", "sphinx_design",
    "sphinx_gallery.gen_gallery", "reference_pages", "repository_pages", "checks",
]  # fmt: skip
exclude_patterns = ["_build", "examples", "**/sg_execution_times.rst", "sg_execution_times.rst"]
default_role = "py:obj"  # `name` in a docstring is a link if the name is documented, otherwise code
templates_path = ["_templates"]
suppress_warnings = [
    "config.cache",  # the settings of the gallery contain functions
    "myst.xref_missing",  # links to headings of repository pages have GitHub's form; `checks` tests all links as built
]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections give the types
autodoc_member_order = "bysource"
autodoc_mock_imports = [] if find_spec("jax") else ["jax"]
numpydoc_show_class_members = False  # the template of a class lists them
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

sphinx_gallery_conf = gallery.settings(HERE)

html_theme = "pydata_sphinx_theme"
html_title = f"fastpe {release}"
html_static_path = ["_static"]
html_css_files = ["fastpe.css"]
html_js_files = ["fastpe.js"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navigation_depth": 3,
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_as_you_type": True,
}
html_sidebars = {"index": [], "changes": []}
