"""Time and memory of the moving map: all of NIPS 1987–1997 in blocks, and 500 entities with the full covariance.

    .venv/bin/python benchmarks/dynamic.py            # needs the real data ($UNDERTOW_DATA, default ../shared/data)
    .venv/bin/python benchmarks/dynamic.py --json

Each case runs in a process of its own, so that its peak of memory is its own; reading the data is counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
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

    began = time.perf_counter()
    events = events_from_documents(DATA / "time" / "nips-1987-1997.jsonl.xz").select(**case["select"])
    steps = case["synthetic_steps"]
    if steps > len(events.times):  # the data have eleven years: the last ones again
        times = list(range(steps))
        tables = [*events.tables, *events.tables[-(steps - len(events.tables)) :]]
        events = Events(times, [0.0] + [1.0] * (steps - 1), events.row_names, events.column_names, tables)  # type: ignore[arg-type]
    read = time.perf_counter() - began
    began = time.perf_counter()
    model = DynamicEmbedding(2, covariance=case["covariance"], random_state=0, n_jobs=-1).fit(events)
    fitted = time.perf_counter() - began
    began = time.perf_counter()
    model.distance(("row", events.row_names[0]), ("column", events.column_names[0]))
    return {
        "rows": len(events.row_names),
        "columns": len(events.column_names),
        "steps": len(events.times),
        "events": events.n_events,
        "iterations": len(model.history_),
        "read_seconds": round(read, 1),
        "fit_seconds": round(fitted, 1),
        "smooth_seconds": round(time.perf_counter() - began, 1),
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), help="one case, in this process")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(CASES[args.case])))
        return
    for name in CASES:
        done = subprocess.run([sys.executable, __file__, "--case", name], capture_output=True, check=True, text=True)
        facts = json.loads(done.stdout)
        print(json.dumps({"case": name, **facts}) if args.json else f"{name}: {facts}", flush=True)


if __name__ == "__main__":
    main()
