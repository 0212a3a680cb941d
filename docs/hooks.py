"""What the documentation site takes from elsewhere: public names, the help of every verb, notebooks; and a check."""

import json
import os
import re
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension

import event2vec
from event2vec.cli import GROUPS, build_parser

# The rooms of the package, as a reader looks for them.
TITLES = {"sensor": "Events", "io": "Files", "model": "Networks", "player": "Looking", "streaming": "Live"}


class AngleBrackets(Extension):
    """What a docstring writes as FOLDER/<name> is text, not a tag that a browser would swallow."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.deregister("html")


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(AngleBrackets())
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    for mark, write in (("<!-- every public name -->", _names), ("<!-- every verb -->", _verbs)):
        markdown = markdown.replace(mark, write()) if mark in markdown else markdown
    return re.sub(r"<!-- (notebooks/\w+\.ipynb) -->", lambda found: _notebook(Path(found[1])), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Pages load nothing from elsewhere: they must work without a network, and tell nobody who reads them."""
    loaded = re.search(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?https?://[^>]*>", output)
    assert not loaded, f"{page.file.src_uri} loads {loaded[0]}"
    return output


def _names() -> str:
    """Each name with its docstring, under the title of its room."""
    parts: list[str] = []
    for name in event2vec.__all__:
        room = event2vec._HOMES[name].split(".")[0]
        title = f"## {TITLES.get(room, room.capitalize())}"
        parts += [] if title in parts else [title]
        parts.append(f"::: event2vec.{name}")
    return "\n\n".join(parts)


def _verbs() -> str:
    """Each verb with its help."""
    os.environ["COLUMNS"] = "100"  # of argparse, whatever the terminal
    parts = []
    for title, verbs in GROUPS.items():
        parts.append(f"## {title.capitalize()}")
        for verb, summary in verbs.items():
            explained = build_parser(verb).format_help().rstrip()
            parts += [f"### {verb}", f"{summary[0].upper()}{summary[1:]}.", f"```text\n{explained}\n```"]
    return "\n\n".join(parts)


def _notebook(path: Path) -> str:
    """Its text and code; results are left out, as in the file."""
    cells = json.loads((Path(__file__).parents[1] / path).read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([*parts[:1], f"This page is `{path}`: run it to see the results.", *parts[1:]])
