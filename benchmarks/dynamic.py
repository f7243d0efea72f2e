"""Time and memory of the moving map: all of NIPS 1987–1997 in blocks, and 500 entities with the full covariance.

    .venv/bin/python benchmarks/dynamic.py            # needs the real data ($UNDERTOW_DATA, default ../shared/data)
    .venv/bin/python benchmarks/dynamic.py --json

Each case runs in a process of its own, so that its peak of memory is its own; reading the data is counted apart.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench import parser, peak_bytes, run_apart, timed
from data import data_dir

CASES: dict[str, dict[str, Any]] = {
    "all of NIPS, blocks": {"select": {}, "covariance": "blocks", "synthetic_steps": 0},
    "500 entities, 13 steps, full": {
        "select": {"n_rows": 80, "n_columns": 420},
        "covariance": "full",
        "synthetic_steps": 13,
    },
}


def measure(case: dict[str, Any]) -> dict[str, Any]:
    from undertow import DynamicEmbedding, Events
    from undertow.text.event_documents import events_from_documents

    path = data_dir() / "time" / "nips-1987-1997.jsonl.xz"
    read, events = timed(lambda: events_from_documents(path).select(**case["select"]))
    steps = case["synthetic_steps"]
    if steps > len(events.times):  # the data have eleven years: the last ones again
        times = list(range(steps))
        tables = [*events.tables, *events.tables[-(steps - len(events.tables)) :]]
        events = Events(times, [0.0] + [1.0] * (steps - 1), events.row_names, events.column_names, tables)  # type: ignore[arg-type]
    model = DynamicEmbedding(2, covariance=case["covariance"], random_state=0, n_jobs=-1)
    fitted, _ = timed(lambda: model.fit(events))
    smoothed, _ = timed(lambda: model.distance(("row", events.row_names[0]), ("column", events.column_names[0])))
    return {
        "rows": len(events.row_names),
        "columns": len(events.column_names),
        "steps": len(events.times),
        "events": events.n_events,
        "iterations": len(model.history_),
        "read_seconds": round(read.wall, 1),
        "fit_seconds": round(fitted.wall, 1),
        "smooth_seconds": round(smoothed.wall, 1),
        "peak_MB": peak_bytes() >> 20,
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--case", choices=list(CASES), help="one case, in this process")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    if args.case:
        print(json.dumps(measure(CASES[args.case])))
        return
    for name in CASES:
        _, _, facts = run_apart([sys.executable, __file__, "--case", name])
        print(json.dumps({"case": name, **facts}) if args.json else f"{name}: {facts}", flush=True)


if __name__ == "__main__":
    main()
