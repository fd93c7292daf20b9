"""Makes links that work on GitHub work on the site, too, completes the navigation, adds the module for diagrams, and checks anchors."""

import posixpath
import re
import shutil
from pathlib import Path

from mkdocs.exceptions import PluginError

REPOSITORY = "https://github.com/conclave-dev/conclave/blob/main/"
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s#]+)(#[^)\s]*)?", re.MULTILINE)


def on_config(config):
    docs = Path(config["docs_dir"])

    def expand(entry):
        if isinstance(entry, dict):
            return {title: expand(value) for title, value in entry.items()}
        if isinstance(entry, list):
            return [expand(item) for item in entry]
        if not entry.endswith("/") or ":" in entry:
            return entry
        pages = sorted((docs / entry).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        return [entry + page.name for page in pages]

    config["nav"] = expand(config["nav"])
    return config


def on_nav(nav, config, files):
    missing = [file.src_path for file in files.documentation_pages() if file.page not in nav.pages]
    if missing:
        raise PluginError(f"nav in mkdocs.yml lacks {', '.join(missing)}")
    return nav


def on_page_markdown(markdown, page, config, files):
    docs = Path(config["docs_dir"]).resolve()
    folder = posixpath.dirname(page.file.src_path)

    def rewrite(match):
        before, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        file = docs.parent / path
        inside = path == "docs" or path.startswith("docs/")
        if inside and file.is_dir() and (file / "README.md").exists():
            return before + posixpath.join(target, "README.md") + anchor
        if not file.exists() or (inside and file.is_file()):
            return match[0]
        return before + REPOSITORY + path + anchor

    return LINK.sub(rewrite, markdown)


def on_post_build(config):
    module = Path(config["config_file_path"]).parent / "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
    site = Path(config["site_dir"]).resolve()
    shutil.copy(module, site / "assets")

    # Headings with marks or with the same text have other anchors here than on GitHub. mkdocs checks anchors only from 1.6.
    pages = {page.parent: page.read_text() for page in site.rglob("index.html")}
    anchors = {folder: re.findall(r'\bid="([^"]+)"', text) for folder, text in pages.items()}
    for folder, text in pages.items():
        for link, anchor in re.findall(r'href="([^":#]*)#([^"]+)"', text):
            if anchor not in anchors.get((folder / link).resolve(), []):
                raise PluginError(f"{folder.relative_to(site)} links to {link}#{anchor}, which doesn't exist on the site")
