"""README, CONTRIBUTING and CHANGELOG are pages of the site too, from the one copy at the top of the repository."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, with their links as seen from docs/."""
    root = Path(config.config_file_path).parent
    for source, target in PAGES.items():
        text = (root / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for name, page in PAGES.items():
            text = text.replace(f"]({name})", f"]({page})")
        text = re.sub(
            r"\[[^]]+\]\((examples/[^)]+|CITATION.cff|SECURITY.md)\)", r"`\1`", text
        )  # source files are not part of the site
        files.append(File.generated(config, target, content=text))
    return files
