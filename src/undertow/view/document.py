"""The skeleton that all pages share: head, security policy, style, embedded data and scripts in one HTML file.

A page loads nothing: its Content-Security-Policy allows only the style and the script inside it, by their hashes. What
comes from a text or a model is escaped where it is HTML, and otherwise JSON in a data block that scripts insert as
text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.atomic import finished_file
from undertow.errors import InputError

DARK = r"@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) \1 }" + "\n" + r":root[data-theme=dark] \1"


def document(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = ("document.css",),
    more_style: str = "",
    scripts: Sequence[str] = (),
    data: Any = None,
) -> str:
    """A whole page as a string.

    Parameters
    ----------
    title
        Text; it is escaped here.
    body
        HTML.
    styles, scripts
        Files of `page/`, in this order; `shared.css` comes first, and all scripts share one scope.
    more_style
        Rules that are computed, after those of the files.
    data
        What the scripts read: JSON values.
    """
    if not title.strip():
        raise InputError("The title is empty: give the page one that says what it shows.")
    style = "\n".join(asset(name) for name in ("shared.css", *styles)) + more_style
    style = re.sub(r"@dark (\{[^}]*\})", DARK, style)
    rules = ["default-src 'none'", f"style-src '{_hash(style)}'", "base-uri 'none'", "form-action 'none'"]
    code = ""
    if scripts:
        script = '"use strict";\n(() => {\n' + "\n".join(asset(name) for name in scripts) + "})();\n"
        rules.insert(1, f"script-src '{_hash(script)}'")
        code = f'<script id="data" type="application/json">{json_block(data)}</script>\n<script>{script}</script>\n'
    parts = {"policy": "; ".join(rules), "title": text(title), "style": style, "body": body, "scripts": code}
    return fill("frame.html", parts)


def save_page(html: str, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a page to a file, which appears complete or not at all."""
    with finished_file(Path(path), overwrite=overwrite) as ready:
        ready.write_bytes(html.encode("utf-8"))


def asset(name: str) -> str:
    """The text of a file in `page/`."""
    return files("undertow.view").joinpath("page").joinpath(name).read_text(encoding="utf-8")


def fill(template: str, parts: dict[str, str]) -> str:
    """A template of `page/` with HTML for its places @@name@@, in one pass: what is put in is not searched again."""
    return re.sub(r"@@(\w+)@@", lambda place: parts[place[1]], asset(template))


def text(value: object) -> str:
    """A value as escaped HTML text."""
    return escape(clean(str(value)))


def clean(value: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate, which only a damaged name has, becomes a question mark."""
    return value.encode("utf-8", "replace").decode("utf-8")


def json_block(value: Any) -> str:
    """JSON that no HTML parser takes for markup: everything outside plain ASCII text is escaped."""
    plain = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def base64_codes(codes: NDArray[np.generic]) -> str:
    """An array of numbers as text, for `codes` in page/dom.js; little-endian."""
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")


def digits(values: Iterable[float], n: int = 4) -> list[float]:
    """Numbers rounded to n significant digits, so that their JSON is short."""
    return [float(f"{v:.{n}g}") for v in np.asarray(values, dtype=np.float64).tolist()]


def page_top(title: str, lead: str) -> str:
    """The heading of a page that is read from top to bottom, with the button of page/theme.js."""
    return (
        f'<header class="top"><div><h1>{text(title)}</h1><p class="lead">{text(lead)}</p></div>'
        '<div class="corner"><button id="theme" type="button" aria-pressed="false">Dark</button></div></header>\n'
        "<noscript><p>Parts of this page are drawn by the script inside this file: allow it to run to see them.</p>"
        '</noscript>\n<div id="live" class="hidden" role="status" aria-live="polite"></div>\n'
    )


def search_box(label: str) -> str:
    """An input for page/combobox.js, with the ids `search` and `found`."""
    return (
        '<div class="search"><input id="search" type="search" role="combobox" aria-expanded="false" '
        f'aria-controls="found" aria-autocomplete="list" aria-label="{text(label)}" placeholder="{text(label)} ( / )" '
        'autocomplete="off" spellcheck="false"><ul id="found" class="found" role="listbox" aria-label="Found" hidden>'
        "</ul></div>\n"
    )


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Large figures with a caption below each, as (figure, caption)."""
    return "<ul class=facts>" + "".join(f"<li><b>{text(v)}</b>{text(k)}</li>" for v, k in facts) + "</ul>"


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
