"""Model cards for the Hugging Face Hub: a saved model is a folder that can be uploaded as it is.

`model.save` writes `config.json`, `model.safetensors`, `vocabulary.txt` and `README.md`, a card whose first lines
(YAML) name the library and the kind of the model. `describe` adds what only its author knows. No network is used here:
upload with `huggingface_hub.upload_folder`, download with `snapshot_download(…, local_dir=…)`, and load the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from undertow.errors import InputError, short
from undertow.files import write_bytes
from undertow.storage import CARD, inspect_model

FENCE = "---\n"


def describe(
    folder: str | os.PathLike[str],
    text: str = "",
    *,
    license: str | None = None,
    language: str | Iterable[str] = (),
    datasets: Iterable[str] = (),
    tags: Iterable[str] = (),
) -> None:
    """Write what is known about a saved model into its card.

    What an earlier call wrote is replaced; the rest of the card stays.

    Parameters
    ----------
    folder
        The directory of a saved model.
    text
        What the model is for and what it was fitted to, in Markdown.
    license
        Such as "apache-2.0".
    language
        A code such as "en", or several.
    datasets
        Names of data sets on the Hub.
    tags
        More tags.

    Raises
    ------
    FormatError
        If the folder does not hold a model.
    InputError
        If a value is not a string, or the card has no heading below its first lines.
    """
    kind = inspect_model(folder)["kind"]
    path = Path(folder) / CARD
    card = path.read_text(encoding="utf-8") if path.exists() else ""
    if card.startswith(FENCE):
        card = card.split(FENCE, 2)[-1]
    heading, found, rest = card.partition(BEGIN)
    if found:
        rest = rest.partition(END)[2]
    else:
        heading, _, rest = card.lstrip().partition("\n")
        heading += "\n"
    if not heading.lstrip().startswith("# "):
        raise InputError(f"{path} does not begin with a heading: write '# Name of the model' above its text.")
    languages = [language] if isinstance(language, str) else list(language)
    fields: dict[str, str | list[str]] = {"library_name": "undertow"}
    fields |= {} if license is None else {"license": license}
    fields |= {"language": languages, "datasets": list(datasets), "tags": ["undertow", kind, *tags]}
    told = f"{BEGIN}{text.strip()}\n{END}" if text.strip() else ""
    write_bytes(path, (_front_matter(fields) + "\n" + heading.lstrip() + told + rest).encode("utf-8"))


BEGIN, END = "\n<!-- about this model -->\n", "<!-- end -->\n"


def _front_matter(fields: dict[str, str | list[str]]) -> str:
    lines = []
    for name, value in fields.items():
        values = [value] if isinstance(value, str) else value
        for item in values:
            if not isinstance(item, str) or not item.strip():
                raise InputError(f"{name}={short(item)} must be a string that is not empty.")
        # a string of JSON is one of YAML; without quotes Norwegian (no) would be false
        quoted = [json.dumps(item, ensure_ascii=False) for item in values]
        if isinstance(value, str):
            lines.append(f"{name}: {quoted[0]}\n")
        elif quoted:
            lines += [f"{name}:\n", *(f"- {item}\n" for item in quoted)]
    return FENCE + "".join(lines) + FENCE


__all__ = ["describe"]
