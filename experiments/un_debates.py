"""The excerpt of the UN General Debate in src/undertow/data: which words 25 countries used, year by year.

    .venv/bin/python experiments/un_debates.py        # writes src/undertow/data/un_debates.csv.xz

Countries: those with most words among the ones that spoke in every year from 1980 to 2014. Words: those whose use tells
most about country and year (largest likelihood ratio against independence), names of countries left out.
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from undertow import Events
from undertow.text.event_documents import events_from_documents
from undertow.text.event_files import event_lines, json_lines
from undertow.text.stop_words import ENGLISH

HERE = Path(__file__).parent
DATA = Path(os.environ.get("UNDERTOW_DATA", HERE.parents[1] / "shared" / "data"))
OUT = HERE.parent / "src" / "undertow" / "data" / "un_debates.csv.xz"
FIRST, COUNTRIES, WORDS, LEAST = 1980, 25, 120, 400
# about the speaker, not the subject: these tell countries apart and nothing else
OWN = frozenset(
    """mr president secretary general assembly session delegation government republic people peoples country
    countries international united nations world year years my excellency behalf like wish today must also would
    shall can mrs sir cent co non want new need work""".split()
)
NAMES = frozenset(
    """china chinese india indian russia russian soviet federation japan japanese germany german france french israel
    israeli israelis cuba cuban pakistan pakistani kashmir jammu iran iranian iraq iraqi viet nam canada canadian
    zealand australia australian brazil brazilian argentina argentine malvinas mexico mexican egypt egyptian libya
    libyan jamahiriya arab arabs syria syrian syrians lebanon lebanese korea korean kampuchea kampuchean afghan
    afghanistan bolivia bolivian chile chilean peru colombia venezuela nicaragua nicaraguan nigeria sudan ethiopia
    somalia kenya turkey turkish cyprus cypriot greek ukraine ukrainian belarus poland polish italy italian
    british kingdom american americans america ireland irish sweden norway nordic denmark finland malta mongolia
    mongolian nepal bangladesh sri lanka thailand indonesia malaysia singapore philippines lao cambodia myanmar
    jordan kuwait kuwaiti saudi yemen oman qatar morocco algeria tunisia mauritania saharan sahara angola
    mozambique zimbabwe zambia tanzania uganda rwanda congo zaire ghana senegal guinea bulgaria romania hungary
    czechoslovakia yugoslavia bosnia herzegovina serbia croatia albania macedonia georgia armenia azerbaijan haiti
    panama ecuador paraguay uruguay guatemala honduras salvador timor african africa asian asia european europe
    latin caribbean pacific islands islamic muslim muslims god almighty gaddafi washington moscow beijing greece
    jamaica mauritius mauritian luxembourg bahrain darfur""".split()
)

COUNTRY = dict(
    pair.split("=")
    for pair in """AUS=Australia BHR=Bahrain BRA=Brazil CHN=China CUB=Cuba DEU=Germany EGY=Egypt FRA=France GRC=Greece
    GTM=Guatemala IDN=Indonesia IND=India IRL=Ireland IRN=Iran IRQ=Iraq JAM=Jamaica JPN=Japan LUX=Luxembourg MLT=Malta
    MUS=Mauritius PAK=Pakistan RUS=Russia SDN=Sudan TZA=Tanzania USA=USA""".split()
)


def telling(events: Events) -> list[str]:
    """Words by the likelihood ratio of their counts by country and year against independence."""
    table = np.array([t.toarray() for t in events.tables]).reshape(-1, len(events.column_names))
    share = table.sum(axis=1) / table.sum()
    expected = np.outer(share, table.sum(axis=0))
    ratio = (table * np.log(np.where(table > 0, table / np.maximum(expected, 1e-12), 1.0))).sum(axis=0)
    order = np.argsort(-ratio, kind="stable")
    return [events.column_names[j] for j in order]


def main() -> None:
    documents = (d for _, d in json_lines(str(DATA / "time" / "ungdc-1946-2014.jsonl.xz")) if d["year"] >= FIRST)
    events = events_from_documents(documents, rows="country", columns="text", stop_words=ENGLISH | OWN | NAMES)
    spoke = np.array([t.sum(axis=1) for t in events.tables])
    rows = np.flatnonzero((spoke > 0).all(axis=0))
    rows = np.sort(rows[np.argsort(-spoke.sum(axis=0)[rows], kind="stable")][:COUNTRIES])
    columns = np.flatnonzero(np.sum([t[rows].sum(axis=0) for t in events.tables], axis=0) >= LEAST)
    chosen = Events(
        events.times,
        events.gaps,
        [events.row_names[i] for i in rows],
        [events.column_names[j] for j in columns],
        [sp.csr_array(t[rows][:, columns]) for t in events.tables],
        ("country", "word"),
    )
    words = set(telling(chosen)[:WORDS])
    keep = [j for j, w in enumerate(chosen.column_names) if w in words]
    excerpt = Events(
        chosen.times,
        chosen.gaps,
        [COUNTRY.get(code, code) for code in chosen.row_names],  # in the order of the codes: the file is sorted by code
        [chosen.column_names[j] for j in keep],
        [sp.csr_array(t[:, keep]) for t in chosen.tables],
        chosen.kind_names,
    )
    text = "".join(event_lines(excerpt)).encode()
    OUT.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    print(
        f"{OUT.name}: {OUT.stat().st_size:,} bytes, {excerpt.n_events:,} events, {excerpt.times[0]}–{excerpt.times[-1]}"
    )
    print(" ".join(excerpt.row_names), "\n", " ".join(excerpt.column_names))


if __name__ == "__main__":
    main()
