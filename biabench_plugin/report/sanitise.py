"""Make an agent's own text and drawings harmless before they are shown: nothing of theirs runs, loads or links."""

from __future__ import annotations

import base64
import re

import nh3
from markdown_it import MarkdownIt

MAX_SVG_BYTES = 400_000

_TEXT_TAGS = {
    "h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
    "del", "table", "thead", "tbody", "tr", "th", "td", "sub", "sup",
}  # fmt: skip
_SVG_TAGS = {
    "svg", "g", "defs", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan", "use",
    "clipPath", "linearGradient", "radialGradient", "stop", "title", "desc", "marker", "symbol", "image",
}  # fmt: skip
_SVG_ATTRIBUTES = {
    "xmlns", "xmlns:xlink", "viewBox", "width", "height", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry",
    "d", "points", "transform", "id", "clip-path", "clip-rule", "fill", "fill-opacity", "fill-rule", "stroke",
    "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin",
    "stroke-miterlimit", "opacity", "font-size", "font-family", "font-weight", "font-style", "text-anchor", "style",
    "dx", "dy", "offset", "stop-color", "stop-opacity", "gradientUnits", "gradientTransform", "clipPathUnits",
    "preserveAspectRatio", "xlink:href", "href", "markerWidth", "markerHeight", "refX", "refY", "orient",
}  # fmt: skip
_LOCAL = re.compile(r"\s*#[\w.-]+\s*")
_PIXELS = re.compile(r"\s*data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=\s]+")
_REMOTE_STYLE = re.compile(r"(?i)url\s*\(\s*(?!['\"]?#)|@|\\|expression|import|javascript|/\*")


def markdown_html(text: str) -> str:
    """Render Markdown as HTML with structure only: raw HTML stays text; no links, pictures, styles or scripts."""
    rendered: str = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").render(text)
    return nh3.clean(rendered, tags=_TEXT_TAGS, attributes={}, url_schemes=set(), strip_comments=True)


def svg_image(text: str) -> str | None:
    """Return a drawing as a ``data:`` address for ``<img>``, where a browser runs no script and loads nothing.

    What could run or load is removed before, too, so that the file stays harmless when someone saves and opens it.
    ``None`` where no drawing is left.
    """
    if len(text) > MAX_SVG_BYTES:
        return None
    start = text.find("<svg")
    if start < 0:
        return None
    cleaned = nh3.clean(
        text[start:],
        tags=_SVG_TAGS,
        clean_content_tags={"script", "style", "foreignObject", "iframe", "object", "embed"},
        attributes={"*": _SVG_ATTRIBUTES},
        attribute_filter=_harmless,
        url_schemes={"data"},
        strip_comments=True,
        link_rel=None,
    ).replace("&nbsp;", "&#160;")
    if not cleaned.startswith("<svg"):
        return None
    head, _, rest = cleaned.partition(">")
    for name, address in (("xmlns", "http://www.w3.org/2000/svg"), ("xmlns:xlink", "http://www.w3.org/1999/xlink")):
        if f'{name}="' not in head:
            head += f' {name}="{address}"'
    return "data:image/svg+xml;base64," + base64.b64encode(f"{head}>{rest}".encode()).decode()


def _harmless(tag: str, name: str, value: str) -> str | None:
    if name in ("href", "xlink:href"):
        fits = _PIXELS.fullmatch(value) if tag == "image" else _LOCAL.fullmatch(value)
        return value if fits else None
    if name.startswith("xmlns"):
        return value if value.startswith("http://www.w3.org/") else None
    return None if _REMOTE_STYLE.search(value) else value
