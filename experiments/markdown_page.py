"""The Markdown of the result pages as blocks and as HTML: headings, paragraphs, lists, tables, code; nothing more."""

from __future__ import annotations

import html
import re
from typing import NamedTuple


class Heading(NamedTuple):
    level: int
    text: str


class Paragraph(NamedTuple):
    text: str


class Items(NamedTuple):
    items: list[str]


class Code(NamedTuple):
    text: str


class Table(NamedTuple):
    header: list[str]
    rows: list[list[str]]


Block = Heading | Paragraph | Items | Code | Table


def parse(text: str) -> list[Block]:
    blocks: list[Block] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines))
            blocks.append(Code("\n".join(lines[at + 1 : end])))
            at = end + 1
        elif match := re.match(r"(#+) (.*)", line):
            blocks.append(Heading(len(match[1]), match[2]))
            at += 1
        elif line.startswith("|"):
            end = at
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            blocks.append(Table(cells(lines[at]), [cells(row) for row in lines[at + 2 : end]]))
            at = end
        else:
            end = at + 1
            while end < len(lines) and lines[end].strip() and not re.match(r"\||#+ |```|- ", lines[end]):
                end += 1
            part = " ".join(piece.strip() for piece in lines[at:end])
            if not line.startswith("- "):
                blocks.append(Paragraph(part))
            elif blocks and isinstance(blocks[-1], Items):
                blocks[-1].items.append(part[2:])
            else:
                blocks.append(Items([part[2:]]))
            at = end
    return blocks


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def number(cell: str) -> float | None:
    """The number that a cell begins with: `-5.69 ± 0.01`, `**200.9**`, `1,216`."""
    match = re.match(r"[*\s]*([-+−]?\d[\d,]*\.?\d*)", cell)
    return float(match[1].replace(",", "").replace("−", "-")) if match else None


def inline(text: str) -> str:
    """Code, bold, emphasis and links; everything else is text. Links to other pages of ours stay text."""
    out = []
    for i, part in enumerate(text.split("`")):
        if i % 2:
            out.append(f"<code>{html.escape(part)}</code>")
            continue
        escaped = html.escape(part).replace("\\*", "&#42;")
        escaped = re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)", r'<a href="\2">\1</a>', escaped)
        escaped = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", escaped)
        escaped = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)
        out.append(re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", escaped))
    return "".join(out)


def render(block: Block, anchor: str = "") -> str:
    if isinstance(block, Heading):
        level = min(block.level + 1, 4)
        name = f' id="{anchor}"' if anchor else ""
        return f"<h{level}{name}>{inline(block.text)}</h{level}>"
    if isinstance(block, Paragraph):
        return f"<p>{inline(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{inline(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Code):
        return f"<pre>{html.escape(block.text)}</pre>"
    numeric = [all(number(row[i]) is not None or row[i] in ("", "–") for row in block.rows if i < len(row)) for i in
               range(len(block.header))]  # fmt: skip
    side = [' class="n"' if n else "" for n in numeric]
    head = "".join(f"<th{s}>{inline(c)}</th>" for c, s in zip(block.header, side, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{s}>{inline(c)}</td>" for c, s in zip(row, side, strict=False)) + "</tr>"
        for row in block.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
