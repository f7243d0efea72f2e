"""A page about any model: its size, how its fit went, and its parameters."""

from __future__ import annotations

from undertow.models.base import Estimator
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
    body.append(f"<h2>Training</h2><div class=chart>{chart}</div>" if chart else "")
    body.append(parameters_section(model))
    return document(heading, "".join(body), scripts=["dom.js", "theme.js"])


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
