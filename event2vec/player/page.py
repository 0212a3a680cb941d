"""The event player as HTML: part of a page, or a page of its own that loads nothing from elsewhere."""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from event2vec.machine.atomic import whole_file
from event2vec.names import printable
from event2vec.player.clip import Clip

FOLDER = Path(__file__).parent
NOTEBOOK_HEIGHT = 760  # pixels
LONG = 10_000_000  # microseconds from which durations are given in seconds


def read_part(name: str) -> str:
    """The text of a file of the player: player.html, player.css, player.js or page.css."""
    return (FOLDER / name).read_text("utf-8")


def embed_player(clips: Sequence[Clip]) -> str:
    """The player and its recordings. The page also needs `start_player` at its end, and player.css."""
    data = json.dumps([clip.facts() for clip in clips]).replace("<", "\\u003c")  # which could end the script element
    return f'{read_part("player.html")}<script type="application/json" id=clips>{data}</script>'


def start_player() -> str:
    start = 'new Player(document.getElementById("player"), JSON.parse(document.getElementById("clips").textContent));'
    return f"<script>{read_part('player.js')}{start}</script>"


@dataclass(frozen=True)
class PlayerPage:
    """A page with the player and one recording; a notebook shows it in a frame."""

    clip: Clip

    def __str__(self) -> str:
        events, title = self.clip.events, html.escape(printable(self.clip.title))
        lasting = f"{self.clip.recorded:,} events in {_duration(events.duration)}, {events.sensor}"
        if self.clip.answers:
            lasting += f"; {self.clip.verdict}"
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
            "<meta name=viewport content='width=device-width'><link rel=icon href='data:,'>"
            f"<style>{read_part('page.css')}{read_part('player.css')}</style>"
            f"<h1>{title}</h1><p class=note>{lasting}</p>{embed_player([self.clip])}{start_player()}</html>\n"
        )

    def write(self, path: Path) -> None:
        """The page as a file, which appears when it is complete."""
        with whole_file(path) as temporary:
            temporary.write_text(str(self), "utf-8", "backslashreplace")  # file names may not be valid text

    def __repr__(self) -> str:
        return f"PlayerPage({self.clip.title!r}, {self.clip.events})"

    def _repr_html_(self) -> str:
        frame = f"width='100%' height={NOTEBOOK_HEIGHT} style='border: 0'"
        return f'<iframe {frame} sandbox="allow-scripts" srcdoc="{html.escape(str(self))}"></iframe>'


def _duration(microseconds: int) -> str:
    return f"{microseconds / 1e3:,.1f} ms" if microseconds < LONG else f"{microseconds / 1e6:,.2f} s"
