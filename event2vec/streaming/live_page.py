"""The text of the live page, what a browser may do with it, and the names under which it is served."""

import contextlib
import html
import ipaddress
import re
from pathlib import Path

from event2vec.player.page import read_part

FOLDER = Path(__file__).parent


def live_page(nonce: str) -> str:
    """The page, with all that it needs."""

    def own(name: str) -> str:
        return (FOLDER / name).read_text("utf-8")

    tag = html.escape(nonce)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Event2Vec live</title>"
        "<meta name=viewport content='width=device-width'><link rel=icon href='data:,'>"
        f"<style nonce='{tag}'>{read_part('page.css')}{read_part('player.css')}{own('live.css')}</style>"
        f"{own('live.html')}<template id=player-parts>{read_part('player.html')}</template>"
        f"<script nonce='{tag}'>{read_part('player.js')}{own('live.js')}</script></html>\n"
    )


def page_headers(nonce: str) -> dict[str, str]:
    """Only the page's own script and style run, and it talks to this server alone."""
    allowed = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'"
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": (
            f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def is_own_host(host: str, bound: str, port: int) -> bool:
    """Whether a Host header names this server: by an address, as localhost or as it was started.

    Another name may be a stranger's, pointed at this machine so that the stranger's page can read from it.
    """
    found = re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:]+)(?::(\d{1,5}))?", host)
    if found is None or int(found[2] or 80) != port:
        return False
    name = found[1].strip("[]").lower()
    if name in ("localhost", bound.lower()):
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
