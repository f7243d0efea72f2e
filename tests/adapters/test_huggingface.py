"""A saved model as a folder of the Hugging Face Hub: its card is read by huggingface_hub, and it loads again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentences import is_one_sentence
from undertow import HMM, load
from undertow.adapters.huggingface import describe
from undertow.errors import FormatError, InputError

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    HMM(2, n_iter=1, random_state=0).fit([["a", "b", "a"]] * 3).save(tmp_path / "m.hmm")
    return tmp_path / "m.hmm"


def test_every_saved_model_has_a_card(saved: Path) -> None:
    card = hub.ModelCard.load(saved / "README.md")
    assert card.data.library_name == "undertow" and card.data.tags == ["undertow", "hmm"]
    assert card.text.strip().startswith("# HMM")
    assert {p.name for p in saved.iterdir()} == {"README.md", "config.json", "model.safetensors", "vocabulary.txt"}


def test_what_its_author_knows(saved: Path) -> None:
    text = "Fitted to *three* sentences.\n\n---\n\n## Limits\n\nIt knows two words."
    for _ in range(2):  # a second call replaces what the first one wrote
        describe(saved, text, license="mit", language=["no", "en"], datasets=["a: b"], tags=['say "x"', "1.0"])
    card = hub.ModelCard.load(saved / "README.md")
    assert card.data.language == ["no", "en"] and card.data.license == "mit" and card.data.datasets == ["a: b"]
    assert card.data.tags == ["undertow", "hmm", 'say "x"', "1.0"]
    assert card.text.count("It knows two words.") == 1 and "| `n_states` | `2` |" in card.text
    describe(saved)
    card = hub.ModelCard.load(saved / "README.md")
    assert "two words" not in card.text and card.data.license is None and card.text.count("# HMM") == 1
    assert load(saved).params_.n_states == 2


def test_a_downloaded_folder_loads(saved: Path, tmp_path: Path) -> None:
    (saved / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (saved / ".cache" / "huggingface").mkdir(parents=True)
    assert load(saved).params_.n_states == 2
    cache = tmp_path / "snapshot"
    cache.mkdir()
    for file in saved.iterdir():
        (cache / file.name).symlink_to(file)
    with pytest.raises(FormatError, match="local_dir") as e:  # links lead out of the folder
        load(cache)
    assert is_one_sentence(str(e.value))


def test_what_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="language"):
        describe(saved, language=[""])
    (saved / "README.md").write_text("My model.")
    with pytest.raises(InputError, match="heading"):
        describe(saved, "A text.")
    with pytest.raises(FormatError):
        describe(tmp_path)
