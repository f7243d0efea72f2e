"""A page read as a browser's parser reads it, and what every page of ours must keep."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;\u2028\u2029 @@data@@ \\1"
HOSTILE_WORD = HOSTILE.replace(" ", "/")  # a word has no spaces


class Page(HTMLParser):
    """Tags, attributes and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.append((self.tags[-1], data))

    def inside(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]


def payload(text: str) -> dict[str, Any]:
    """The data block of a page."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert found
    value: dict[str, Any] = json.loads(found[1])
    return value


def check_closed(text: str) -> None:
    """Nothing but the page itself may run or load: no network, no handlers, only the style and script inside."""
    page = Page(text)
    (policy,) = [value or "" for name, value in page.attributes if name == "content" and "default-src" in (value or "")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (code,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        assert rules[rule] == "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"
    assert not {"link", "iframe", "object", "img", "embed", "base", "form"} & set(page.tags)
    assert not {"src", "style"} & {name for name, _ in page.attributes}
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")  # the name of SVG's namespace, never fetched
    assert "url(" not in text and "@import" not in text and "innerHTML" not in text and "eval(" not in text
