"""Makes src/undertow/data/un_debates.csv.xz: countries and telling words in the UN General Debate, for the demo.

    .venv/bin/python experiments/un_excerpt.py

Counts of about a hundred words in the speeches of thirty countries, 1946–2014, added up over three years at a time. The
words were picked by hand for being about something; all their counts are here, none left out.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
from collections import Counter
from pathlib import Path

from data import records

COUNTRIES = {
    "USA": "United States", "RUS": "Russia / USSR", "CHN": "China", "GBR": "United Kingdom", "FRA": "France",
    "DEU": "Germany", "JPN": "Japan", "IND": "India", "PAK": "Pakistan", "BRA": "Brazil", "MEX": "Mexico",
    "CUB": "Cuba", "ZAF": "South Africa", "NGA": "Nigeria", "GHA": "Ghana", "EGY": "Egypt", "ISR": "Israel",
    "SYR": "Syria", "IRN": "Iran", "IRQ": "Iraq", "SAU": "Saudi Arabia", "TUR": "Turkey", "GRC": "Greece",
    "POL": "Poland", "SWE": "Sweden", "AUS": "Australia", "IDN": "Indonesia", "VNM": "Vietnam", "KEN": "Kenya",
    "CHL": "Chile",
}  # fmt: skip
WORDS = """
    nuclear disarmament missiles weapons detente aggression imperialism socialism communist colonialism
    independence decolonization liberation apartheid racism mercenaries namibia zimbabwe congo angola rhodesia
    biafra rwanda sudan darfur somalia palestine palestinian arab lebanon jerusalem zionist
    kuwait afghanistan cyprus greek turkish kashmir bangladesh tibet korea korean kampuchea
    cambodia soviet american berlin yugoslavia bosnia kosovo nicaragua embargo terrorism
    terrorist extremism hijacking genocide refugees humanitarian sanctions democracy democratic elections
    rights women children youth education health aids malaria poverty hunger food debt trade oil energy
    inflation market globalization investment development aid technology internet cyber climate warming
    emissions environment sustainable ocean sea fisheries drugs trafficking crime corruption migration veto
    charter peacekeeping
""".split()
STEP = 3  # years


def main() -> None:
    wanted = set(WORDS)
    counts: Counter[tuple[int, str, str]] = Counter()
    for speech in records("time/ungdc-1946-2014.jsonl.xz"):
        name = COUNTRIES.get(speech["country"])
        if name is None:
            continue
        year = 1946 + (int(speech["year"]) - 1946) // STEP * STEP
        # many speeches are wrapped at about sixty characters, some words with a hyphen
        text = re.sub(r"-\n", "", speech["text"]).lower()
        for word in re.findall(r"[a-z]+", text):
            if word in wanted:
                counts[year, name, word] += 1
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["time", "countries", "words", "count"])
    writer.writerows([*key, n] for key, n in sorted(counts.items()))
    out = Path(__file__).parents[1] / "src" / "undertow" / "data" / "un_debates.csv.xz"
    out.write_bytes(lzma.compress(table.getvalue().encode("utf-8"), preset=9))
    print(f"{out.name}: {len(counts):,} rows, {sum(counts.values()):,} counts, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
