"""Results as data: results/<name>.json has the tables, words and settings of a page; results/<name>.md shows them.

    write_page("lds_pos", markdown, __file__, vars(options))     # at the end of an experiment

A file has `settings` (seeds among them), `source` (the key of the code that measured, see source_key.py), `data` (what
an experiment adds for machines) and `page`: pieces of text and tables, whose cells are as they are shown. Words of a
page may be edited in its Markdown; then

    .venv/bin/python experiments/pages.py lds_pos

takes them over into the JSON file, and a test says so if that was forgotten.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from source_key import source_key

RESULTS = Path(__file__).parent / "results"


class Table(NamedTuple):
    header: list[str]
    rows: list[list[str]]


class Page(NamedTuple):
    settings: dict[str, Any]
    source: str | None  # None: from before results were kept as data
    data: Any
    blocks: list[str | Table]  # Markdown between tables, and tables

    @property
    def title(self) -> str:
        return self.markdown.split("\n", 1)[0].removeprefix("# ")

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def markdown(self) -> str:
        return "\n".join(shown(block) if isinstance(block, Table) else block for block in self.blocks)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def row(values: list[str]) -> str:
    return f"| {' | '.join(values)} |"


def shown(table: Table) -> str:
    return "\n".join([row(table.header), "|" + "---|" * len(table.header), *map(row, table.rows)])


def blocks_of(markdown: str) -> list[str | Table]:
    """Cut at tables: lines that begin with a bar, the second of which is the rule under the header."""
    blocks: list[str | Table] = []
    pieces = re.split(r"((?:^\|.*(?:\n|\Z))+)", markdown, flags=re.MULTILINE)
    for i, piece in enumerate(pieces):
        if i % 2:
            header, _, *rows = piece.rstrip("\n").split("\n")
            blocks.append(Table(cells(header), [cells(line) for line in rows]))
        elif piece:
            blocks.append(piece.removesuffix("\n") if i + 1 < len(pieces) else piece)
    return blocks


def number(cell: str) -> float | None:
    """The number at the beginning of a cell: `**94.90** ± 0.04` is 94.9."""
    match = re.match(r"[+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?", re.sub(r"[*`\\]", "", cell))
    return float(match[0].replace(",", "").replace("−", "-")) if match else None


def read_page(name: str, folder: Path = RESULTS) -> Page:
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    blocks = [Table(**b["table"]) if "table" in b else "\n".join(b["text"]) for b in found["page"]]
    return Page(found["settings"], found["source"], found["data"], blocks)


def write_files(name: str, page: Page, folder: Path = RESULTS) -> None:
    """The JSON file, and the Markdown that it renders to."""
    blocks = [{"table": b._asdict()} if isinstance(b, Table) else {"text": b.split("\n")} for b in page.blocks]
    whole = {"settings": page.settings, "source": page.source, "data": page.data, "page": blocks}
    text = json.dumps(whole, indent=1, ensure_ascii=False, default=str)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page.markdown, encoding="utf-8")


def write_page(name: str, markdown: str, script: str, settings: Mapping[str, Any], data: Any = None) -> None:
    """What an experiment found. Paths among the settings are of this machine, and left out."""
    portable = {k: v for k, v in settings.items() if not isinstance(v, Path)}
    write_files(name, Page(portable, source_key(script), data, blocks_of(markdown)))


def words_from(name: str, heading: str, folder: Path = RESULTS) -> str:
    """What was written by hand, from this heading on, on the page as it is: it stays when the page is made anew."""
    path = folder / f"{name}.md"
    _, found, words = (path.read_text(encoding="utf-8") if path.exists() else "").partition(heading)
    return found + words


def notes_of(name: str, folder: Path = RESULTS) -> str:
    """The end of a page that has its own file, results/<name>.notes.md."""
    path = folder / f"{name}.notes.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="pages whose Markdown was edited")
    for name in parser.parse_args().names:
        new = Page({}, None, None, blocks_of((RESULTS / f"{name}.md").read_text(encoding="utf-8")))
        if (RESULTS / f"{name}.json").exists():
            new = read_page(name)._replace(blocks=new.blocks)
        write_files(name, new)
        print(f"{name}: {len(new.tables)} tables, {len(new.markdown):,} characters")


if __name__ == "__main__":
    main()
