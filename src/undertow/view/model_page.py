"""A page about any model: its size, how its fit went, and its parameters."""

from __future__ import annotations

from undertow.models.base import Estimator
from undertow.results.tagging.scores import Report
from undertow.view.charts import curve_chart
from undertow.view.document import document, facts_list, page_top, text


def plain_page(model: Estimator, *, title: str | None = None) -> str:
    """A page about a model that has no page of its own, such as a tagger; it works offline."""
    name = type(model).__name__
    heading = f"A {name}" if title is None else title
    facts = [(f"{len(model.history_)}", "iterations")]
    if "vocabulary_" in vars(model):
        facts.append((f"{len(model.vocabulary_):,}", "words"))
    labels = [str(label) for label in getattr(model, "labels_", [])]
    if labels:
        facts.append((f"{len(labels):,}", "labels"))
    chart = curve_chart([("objective", model.history_)], x_label="iteration", y_label="objective")
    body = [page_top(heading, f"Size, training and parameters of this {name}."), facts_list(facts)]
    if labels:
        shown = "".join(f"<span>{text(label)}</span> " for label in labels)
        body.append(f"<h2>Labels</h2><p class=words>{shown}</p>")
    scores = getattr(model, "held_out_", None)
    if scores is not None:
        body.append(held_out_section(scores))
    body.append(f"<h2>Training</h2><div class=chart>{chart}</div>" if chart else "")
    body.append(parameters_section(model))
    return document(heading, "".join(body), scripts=["dom.js", "theme.js"])


GROUPS = {"all": "all tokens", "oov": "tokens of words unseen in training", "rare": "tokens of rare words"}


def held_out_section(scores: Report) -> str:
    """What a tagger got right on labelled sentences that it was not trained on; of spans the F1."""

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.1%}"

    rows = "".join(
        f"<tr><td>{text(GROUPS[s.group] if s.of == 'tokens' else f'spans: {s.group}')}</td><td>{s.gold:,}</td>"
        f"<td>{s.correct:,}</td><td>{share(s.accuracy if s.of == 'tokens' else s.f1)}</td></tr>"
        for s in scores.table()
    )
    return (
        "<h2>On sentences that were held out</h2><table><thead><tr><th></th><th>number</th><th>right</th>"
        f"<th>accuracy; F1 of spans</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def parameters_section(model: Estimator) -> str:
    """The parameters of a model as a folded table; those that only programs set are left out."""
    rows = "".join(
        f"<tr><td><code>{text(name)}</code></td><td>{text(value)}</td></tr>"
        for name, value in model.get_params().items()
        if name not in model.unsaved_params
    )
    return (
        f"<h2>Parameters</h2><details><summary>of this {type(model).__name__}</summary>"
        f"<table class=parameters>{rows}</table></details>"
    )
