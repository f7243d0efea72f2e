"""The evidence on one page: every table of results/, with plots, as one HTML file that needs no network.

    .venv/bin/python experiments/report.py                 # writes docs/evidence.html
    .venv/bin/python experiments/report.py --check         # only says whether that page is up to date

The first screen, results/verdicts.md, is written by hand: what each paper claims and whether it holds here; a verdict
begins with **holds**, **in part** or **no**, and its figures unfold. The rest, folded too, is what the experiments
wrote into results/*.json (see pages.py), rendered by markdown-it-py and drawn by matplotlib; codes such as OOV are
explained where they stand (glossary.py). `pip install -c constraints.txt '.[report]'`.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from glossary import ANY, codes_in, meaning
from pages import Table, blocks_of, number, read_page
from plots import dots, lines

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "evidence.html"

Plot = Callable[[Table], str | None]  # nothing where the table is not the one that it draws

# pages in the order of the report, under the paper that they answer
CHAPTERS: dict[str, list[str]] = {
    "Gaussian linear dynamical systems (Belanger & Kakade)": [
        "lds_transitions",
        "tagging_pos",
        "lds_pos",
        "tagging_ner",
        "tagging_default",
        "lds_start",
        "lds_start_wikitext2",
        "lds_noise",
        "lds_stronger",
        "lds_rnn",
    ],
    "Hidden Markov models with many states": ["hmm_tied", "hmm_perplexity", "hmm_neural", "queries", "steering"],
    "Grammars": ["grammar_trees", "grammar"],
    "Factorial hidden Markov models (Nepal & Yates)": ["fhmm_pos", "fhmm_much"],
    "Embedding author-word co-occurrence data over time (Sarkar, Siddiqi & Gordon)": [
        "dynamic_nips",
        "dynamic_coverage",
    ],
}


def dot_plot(title: str, label: str, *columns: str) -> Plot:
    """Rows of a table that has these columns; rows without a number in them are left out."""

    def draw(table: Table) -> str | None:
        if label not in table.header or not set(columns) <= set(table.header):
            return None
        where = [table.header.index(c) for c in columns]
        rows = [r for r in table.rows if len(r) == len(table.header) and any(number(r[i]) is not None for i in where)]
        if len(rows) < 2:
            return None
        names = [re.sub(r"[*`]", "", r[table.header.index(label)]) for r in rows]
        return dots(title, names, {c: [number(r[i]) for r in rows] for c, i in zip(columns, where, strict=True)})

    return draw


def line_plot(title: str, label: str, x_name: str, *, log_y: bool = False) -> Plot:
    """A line a row, through the columns whose heads are numbers; the first column is headed `label`."""

    def draw(table: Table) -> str | None:
        heads = [float(m[1]) if (m := re.fullmatch(r"(?:epoch )?(\d+)", c)) else None for c in table.header]
        if table.header[0] != label or sum(h is not None for h in heads) < 2:
            return None
        series = {}
        for row in table.rows:
            cells = ((h, number(c)) for h, c in zip(heads, row, strict=True))
            series[row[0]] = [(h, v) for h, v in cells if h is not None and v is not None]
        return lines(title, series, x_name, log_y=log_y)

    return draw


def states_plot(table: Table) -> str | None:
    """Perplexity against the number of states, of the rows named after it."""
    if table.header[:1] != ["row"] or "perplexity" not in table.header:
        return None
    at = table.header.index("perplexity")
    points = [
        (float(m[1]), value)
        for row in table.rows
        if (m := re.fullmatch(r"states-(\d+)", row[0])) and (value := number(row[at])) is not None
    ]
    if len(points) < 2:
        return None
    return lines("Perplexity of valid against the number of states", {"HMM": points}, "states", log_x=True)


LIKELIHOODS = line_plot("Log-likelihood a token after full EM iterations", "start, after iterations", "iteration")
PLOTS: dict[str, list[Plot]] = {
    "lds_pos": [dot_plot("Accuracy of a local classifier on CRAFT dev", "vectors", "accuracy")],
    "lds_start": [LIKELIHOODS],
    "lds_start_wikitext2": [LIKELIHOODS],
    "lds_rnn": [line_plot("Dev perplexity after each epoch", "unit, start", "epoch", log_y=True)],
    "tagging_pos": [dot_plot("Accuracy", "tagger", "accuracy: all", "OOV")],
    "tagging_ner": [dot_plot("F1 of spans", "tagger", "F1")],
    "hmm_tied": [states_plot, dot_plot("Perplexity of WikiText-2 valid", "row", "perplexity", "with 5-gram")],
    "hmm_perplexity": [states_plot, dot_plot("Perplexity of WikiText-2 valid", "row", "perplexity")],
    "hmm_neural": [dot_plot("Perplexity of valid", "form", "valid")],
    "fhmm_pos": [dot_plot("Error on unseen words of both tests", "read beside spelling", "OOV, both")],
    "fhmm_much": [dot_plot("Error on unseen words of both tests", "read beside spelling", "OOV, both")],
    "dynamic_nips": [dot_plot("Next year's links: area under the curve", "", "all: AUC", "new: AUC")],
}

STYLE = """
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--paper:#fff;--panel:#f6f8fa;
--0:#1f6fb2;--1:#d9622b;--2:#2f8f5b;--3:#8a5fb5;--4:#b58a1f;--5:#c0407a}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ef;--soft:#9aa7b5;--line:#37414d;--paper:#14191f;--panel:#1c232b;
--0:#6db3ee;--1:#f0935f;--2:#6cc893;--3:#bd97e3;--4:#e0bd5c;--5:#ec86b3}}
body{margin:0 auto;max-width:60rem;padding:2rem 1.2rem 5rem;font:16px/1.55 system-ui,sans-serif;color:var(--ink);
background:var(--paper)}
h1{line-height:1.2}h2{margin-top:3.5rem;border-bottom:2px solid var(--line);padding-bottom:.3rem}h3{margin-top:2.4rem}
a{color:var(--0)}nav li{margin:.15rem 0}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;margin:1rem 0}th,td{padding:.3rem .65rem;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--soft);font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.9em;background:var(--panel);padding:.1em .3em;
border-radius:3px}pre{background:var(--panel);padding:.8rem;overflow-x:auto}
figure{margin:1.5rem 0;background:var(--panel);border-radius:8px;padding:1rem}figcaption{font-weight:600}
svg{width:100%;height:auto}
abbr{text-decoration:underline dotted var(--soft);text-underline-offset:.2em;cursor:help}
summary{cursor:pointer}summary:hover{background:var(--panel)}
.claims details{border-bottom:1px solid var(--line)}
.claims summary{display:flex;gap:.7rem;padding:.3rem .2rem;list-style-position:inside}
.claims dl{margin:.2rem 0 .8rem 6.2rem}.claims dt{color:var(--soft);font-size:.85rem}.claims dd{margin:0 0 .4rem}
.mark{flex:0 0 4.6rem;text-align:center;border-radius:1rem;font-size:.8rem;line-height:1.6rem;height:1.6rem;
font-weight:600;color:var(--paper)}.holds{background:var(--2)}.in-part{background:var(--4)}.no{background:var(--1)}
.page{border:1px solid var(--line);border-radius:8px;margin:.6rem 0;padding:0 1rem}
.page>summary{padding:.7rem 0;font-weight:600}.page h3{display:none}.codes{font-size:.85rem;color:var(--soft)}
@media print{details{display:block}}
"""

MARKS = ("holds", "in part", "no")


def render(text: str, tables: list[Table], deeper: int, anchor: str = "", plots: Iterable[Plot] = ()) -> str:
    """Markdown as HTML: headings `deeper` levels down, columns of numbers flush right, plots behind their tables."""
    rules = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = rules.parse(text)
    out: list[Token] = []
    remaining = iter(tables)
    numeric: list[bool] = []
    column = 0
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + deeper, 4)}"
            if anchor and token.nesting == 1:
                token.attrSet("id", anchor)
                anchor = ""
        elif token.type == "table_open":
            table = next(remaining)
            numeric = numeric_columns(table)
            out.append(raw('<div class="wide">'))
        elif token.type == "tr_open":
            column = 0
        elif token.type in ("td_open", "th_open"):
            if numeric[column]:
                token.attrSet("class", "n")
            column += 1
        elif token.type == "inline" and token.children:
            token.children = [part for t in token.children if not local_link(t) for part in explained(t)]
        out.append(token)
        if token.type == "table_close":
            out.append(raw("</div>\n" + "".join(svg + "\n" for plot in plots if (svg := plot(table)) is not None)))
    return str(rules.renderer.render(out, rules.options, {}))


def raw(text: str) -> Token:
    return Token("html_block", "", 0, content=text)


def explained(token: Token) -> list[Token]:
    """A piece of text with its codes marked as abbreviations."""
    if token.type != "text" or not ANY.search(token.content):
        return [token]
    out, end = [], 0
    for match in ANY.finditer(token.content):
        out.append(Token("text", "", 0, content=token.content[end : match.start()]))
        code = f'<abbr title="{html.escape(meaning(match[0]))}">{html.escape(match[0])}</abbr>'
        out.append(Token("html_inline", "", 0, content=code))
        end = match.end()
    return [*out, Token("text", "", 0, content=token.content[end:])]


def numeric_columns(table: Table) -> list[bool]:
    """Which columns have a number, a dash or nothing in every row."""
    columns = ([row[i] for row in table.rows if i < len(row)] for i in range(len(table.header)))
    return [all(number(cell) is not None or cell in ("", "–") for cell in cells) for cells in columns]


def local_link(token: Token) -> bool:
    """The ends of links to other pages, whose text stays: all of them are on this page. None leads out of it."""
    return token.type in ("link_open", "link_close")


def cell(text: str) -> str:
    """The Markdown of a cell as HTML."""
    return render(text, [], deeper=0).strip().removeprefix("<p>").removesuffix("</p>")


def claims(table: Table) -> str:
    """The verdicts, one line each; the paper's figure and ours unfold."""
    out = []
    for claim, paper, here, verdict in table.rows:
        mark, _, rest = verdict.removeprefix("**").partition("**")
        if mark not in MARKS:
            raise ValueError(f"The verdict {verdict!r} must begin with one of {MARKS}, in bold.")
        told = [("the paper", paper), ("here", here), ("verdict", rest.removeprefix(":").strip() or mark)]
        facts = "".join(f"<dt>{name}</dt><dd>{cell(text)}</dd>" for name, text in told)
        badge = f'<span class="mark {mark.replace(" ", "-")}">{mark}</span>'
        out.append(f"<details><summary>{badge}<span>{cell(claim)}</span></summary><dl>{facts}</dl></details>")
    return f'<div class="claims">{"".join(out)}</div>'


def folded(name: str, results: Path) -> str:
    """One experiment, to unfold: its codes, texts, tables and plots."""
    page = read_page(name, results)
    codes = "; ".join(f"<b>{code}</b>: {html.escape(meaning(code))}" for code in codes_in(page.markdown))
    body = render(page.markdown, page.tables, deeper=2, anchor=name, plots=PLOTS.get(name, []))
    note = f'<p class="codes">{codes}.</p>' if codes else ""
    return f'<details class="page"><summary>{html.escape(page.title)}</summary>{note}{body}</details>'


def build(results: Path) -> str:
    parts = []
    for chapter, names in CHAPTERS.items():
        parts.append(f"<h2>{html.escape(chapter)}</h2>")
        parts += [folded(name, results) for name in names]
    verdicts = (results / "verdicts.md").read_text(encoding="utf-8").split("\n", 1)[1]  # without its title
    lead, table, *rest = blocks_of(verdicts)
    if not isinstance(lead, str) or not isinstance(table, Table) or any(map(str, rest)):
        raise ValueError("results/verdicts.md must be some text and one table.")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1"><title>undertow: the evidence</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>undertow: the evidence</h1>\n"
        + render(lead, [], deeper=1)
        + claims(table)
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = build(HERE / "results")
    if options.check:
        sys.exit(None if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else f"{PAGE} is out of date.")
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE}: {len(page):,} characters")


if __name__ == "__main__":
    main()
