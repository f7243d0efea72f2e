"""undertow inspect: describe a directory; only the diagnostics of an HMM need the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, show
from undertow.errors import InputError


@click.command()
@click.argument("path", type=click.Path())
@click.option("--quick", is_flag=True, help="Read the configuration alone, without the diagnostics of an HMM.")
@json_option
def command(path: str, quick: bool, as_json: bool) -> None:
    """Describe a corpus, counts or model directory, and how an HMM uses its states."""
    facts = describe(Path(path))
    shown = facts if as_json else condensed(facts)
    if facts["kind"] == "hmm" and not quick:
        from undertow.cli.model import open_model

        found = open_model(path, "diagnose").diagnose()
        shown = shown | ({"diagnostics": found.to_dict()} if as_json else dict(found.facts()))
    show(shown, as_json)


def condensed(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts for text output: the long lists of a model shortened to one line each."""
    if "tensors" not in facts:
        return facts
    history, fitted = facts["history"], facts["fitted"]
    if isinstance(fitted.get("crf"), dict):  # a tagger with a CRF inside: what that holds is the tagger's
        fitted = {**{k: v for k, v in fitted.items() if k != "crf"}, **fitted["crf"]["fitted"]}
    if isinstance(fitted.get("held_out"), dict):
        fitted = {**fitted, "held_out": f"{fitted['held_out']['tokens']['all']['accuracy']:.2%} of the tokens"}
    if isinstance(fitted.get("models"), list):  # a tagger contains models, with long lists of their own
        fitted = {**fitted, "models": [m["kind"] for m in fitted["models"]]}
    shapes = {name: "×".join(map(str, t["shape"])) for name, t in facts["tensors"].items()}
    return {
        **{k: v for k, v in facts.items() if k not in ("history", "tensors", "files")},
        "fitted": fitted,
        "iterations": len(history),
        "objective": f"{history[0]:.6g} → {history[-1]:.6g}",
        "tensors": shapes,
        "bytes": sum(f["bytes"] for f in facts["files"].values()),
    }


def describe(path: Path) -> dict[str, Any]:
    from undertow.storage import CONFIG, inspect_model
    from undertow.text import corpus, counts_directory
    from undertow.text.lag_counts import LagCounts

    if (path / CONFIG).exists():
        return inspect_model(path)
    if not path.is_dir() or not (path / corpus.MANIFEST).exists():
        raise InputError(
            f"{path} is not a corpus, counts or model directory: it has neither {corpus.MANIFEST} nor {CONFIG}."
        )
    from undertow.files import read_json

    if read_json(path / corpus.MANIFEST).get("format") == counts_directory.FORMAT:
        counts = LagCounts.open(path, verify=False)
        manifest = counts_directory.read_counts_manifest(path)
        return {
            "kind": "counts",
            "tokens": counts.n_tokens,
            "words": len(counts.vocabulary),
            "lags": counts.lags,
            "across_sentences": counts.across,
            "pairs": manifest.get("pairs"),
            "different_pairs": manifest.get("nnz"),
            "bytes": sum(f["bytes"] for f in manifest["files"].values()),
            "most_frequent": list(counts.vocabulary.words[counts.vocabulary.n_special :][:12]),
        }
    opened = corpus.Corpus.open(path, verify=False)
    m = opened.manifest
    return {
        "kind": "corpus",
        "tokens": opened.n_tokens,
        "sentences": opened.n_sentences,
        "words": len(opened.vocabulary),
        "unknown": opened.vocabulary.n_unknown,
        "boundary": opened.vocabulary.boundary,
        "tokenizer": m.get("tokenizer"),
        "sources": m.get("sources"),
        "text_bytes": m.get("text_bytes"),
        "lines_cut": m.get("cut_lines"),
        "invalid_utf8": m.get("bad_utf8"),
        "bytes": sum(f["bytes"] for f in m["files"].values()),
        "most_frequent": list(opened.vocabulary.words[opened.vocabulary.n_special :][:12]),
    }
