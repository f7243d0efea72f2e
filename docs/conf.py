"""Configuration of the documentation site: `make docs` builds it, warnings are errors.

The source directory is the root of the repository (`sphinx-build -c docs . …`), so that pages link to those of
benchmarks/ and experiments/ by the same relative paths as on a code host.
"""

from undertow import __version__

project = "undertow"
author = "The undertow developers"
project_copyright = "The undertow developers. Apache-2.0"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_click"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "benchmarks/README.md",
    "experiments/README.md",
    "experiments/results/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [
    *(".*", "build", "dist", "src", "tests", "demo-output", "htmlcov", "docs/_build", "**/work"),
    *("experiments/results/verdicts.md", "experiments/results/*.notes.md"),  # parts of other pages
]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

default_role = "literal"  # single backticks in docstrings are code
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # numpydoc's sections describe the parameters
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # autodoc lists them with their text

html_theme = "furo"
html_title = "undertow"
html_additional_pages = {"index": "redirect.html"}  # pages keep their folders, so the first one is docs/index.html
templates_path = ["_templates"]
html_copy_source = False
html_show_sphinx = False
