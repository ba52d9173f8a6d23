"""Check a built site without a network: every link and picture of every page leads to a file and a place in it."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the places that can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places.update(filter(None, (given.get("id"), given.get("name"))))
        self.links += [given[key] or "" for key in ("href", "src") if key in given]


def faults(site: Path) -> list[str]:
    """Every link that leads nowhere, with its page."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} holds no page"]
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                found.append(f"{path.relative_to(site.resolve())}: {link} leads nowhere")
    return found


if __name__ == "__main__":
    broken = faults(Path(sys.argv[1]))
    print("\n".join(broken) or "every link leads somewhere")
    sys.exit(bool(broken))
