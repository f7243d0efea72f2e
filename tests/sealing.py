"""Edits to written directories as an attacker makes them: every hash and the digest fit again afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undertow.files import DIGEST, describe_files, write_sealed


def edit_sealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a manifest.json or config.json says, and give it the digest of that."""
    content = json.loads(path.read_bytes())
    change(content)
    content.pop(DIGEST, None)
    try:
        write_sealed(path, content)
    except ValueError:  # NaN and infinity, which undertow does not write and another program might
        path.write_text(json.dumps(content))


def reseal(path: Path) -> None:
    """Put the hashes of the files as they are now into the JSON that describes their directory."""
    edit_sealed(path, lambda c: c.update(files=describe_files(path.parent, list(c["files"]))))
