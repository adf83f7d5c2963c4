"""Figures: outlines and marks over images with a scale bar and a legend, and plots as PNG (300 dpi) and SVG.

Overlays are drawn pixel for pixel with Pillow (fast, exact); plots and panels with Matplotlib. Colours are those of
Okabe and Ito, which colour-blind readers tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

mpl.use("Agg")

BLACK, ORANGE, SKY, GREEN = (0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115)
YELLOW, BLUE, VERMILION, PURPLE = (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167)
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DPI = 300

RGB = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]


def hexadecimal(colour: Colour) -> str:
    """Return a colour as Matplotlib wants it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


@dataclass(frozen=True)
class Scale:
    """The size of a pixel, if known; lengths are shown in pixels otherwise."""

    pixel_um: float | None = None

    @property
    def unit(self) -> str:
        return "px" if self.pixel_um is None else "µm"

    @property
    def area_unit(self) -> str:
        return f"{self.unit}²"

    def length(self, pixels: Any) -> Any:
        """Convert lengths in pixels to :attr:`unit`."""
        return pixels if self.pixel_um is None else pixels * self.pixel_um

    def area(self, pixels: Any) -> Any:
        """Convert areas in pixels to :attr:`area_unit`."""
        return pixels if self.pixel_um is None else pixels * self.pixel_um**2

    def bar(self, width_px: int) -> tuple[float, str]:
        """Return length in pixels and label of a round bar (1, 2, 5, 10, …) of about a fifth of an image's width."""
        target = float(self.length(width_px)) / 5
        power = 10.0 ** np.floor(np.log10(target))
        value = max(step * power for step in (1, 2, 5) if step * power <= target)
        pixels = value if self.pixel_um is None else value / self.pixel_um
        return pixels, f"{value:g} {self.unit}"


def to_rgb(image: npt.NDArray[Any], *, low: float = 0.5, high: float = 99.8, gamma: float = 1.0) -> RGB:
    """Return a display copy: grey images are stretched between two percentiles, 8-bit RGB images stay as they are."""
    if image.ndim == 3 and image.dtype == np.uint8:
        return image
    data = image.astype(np.float32)
    step = max(1, round((data.shape[0] * data.shape[1] / 250_000) ** 0.5))  # enough pixels for a percentile
    bottom, top = np.percentile(data[::step, ::step], [low, high])
    grey = np.clip((data - bottom) / max(float(top - bottom), 1e-6), 0, 1) ** gamma
    byte = (255 * grey).astype(np.uint8)
    return byte if byte.ndim == 3 else np.repeat(byte[..., None], 3, axis=2)


def outline(labels: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return the pixels of objects that touch another label or the background (4-neighbours), one pixel wide."""
    edge = np.zeros(labels.shape, dtype=bool)
    vertical, horizontal = labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]
    edge[1:] |= vertical
    edge[:-1] |= vertical
    edge[:, 1:] |= horizontal
    edge[:, :-1] |= horizontal
    return edge & (labels > 0)


def draw_outlines(rgb: RGB, layers: Sequence[tuple[npt.NDArray[np.integer], Colour]], zoom: int = 1) -> RGB:
    """Return an enlarged copy of an image with the outlines of label images drawn over it."""
    canvas = np.repeat(np.repeat(rgb, zoom, axis=0), zoom, axis=1).copy()
    for labels, colour in layers:
        canvas[outline(np.repeat(np.repeat(labels, zoom, axis=0), zoom, axis=1))] = colour
    return canvas


def _font(size: int) -> Any:
    # Pillow's own font lacks the micro sign
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def annotate(
    canvas: RGB,
    scale: Scale,
    zoom: int,
    legend: Sequence[tuple[str, Colour]] = (),
    numbers: Sequence[tuple[float, float, str]] = (),
    circles: Sequence[tuple[float, float, float, Colour]] = (),
) -> PillowImage.Image:
    """Add marks, numbers, a scale bar and a legend strip to an image.

    Parameters
    ----------
    canvas
        Image that was enlarged ``zoom`` times.
    legend
        Text and colour of each kind of mark.
    numbers
        ``(y, x, text)`` in pixels of the original image.
    circles
        ``(y, x, radius, colour)`` in pixels of the original image.
    """
    height, width = canvas.shape[:2]
    size = max(11, round(width / 70))
    strip = round(1.9 * size)
    picture = PillowImage.new("RGB", (width, height + strip), "white")
    picture.paste(PillowImage.fromarray(canvas), (0, 0))
    draw = ImageDraw.Draw(picture)
    for y, x, radius, colour in circles:
        cy, cx, reach = (y + 0.5) * zoom, (x + 0.5) * zoom, radius * zoom
        draw.ellipse((cx - reach, cy - reach, cx + reach, cy + reach), outline=colour, width=max(1, zoom))
    small = _font(max(8, round(size * 0.7)))
    for y, x, text in numbers:
        draw.text(((x + 0.5) * zoom, (y + 0.5) * zoom), text, fill=YELLOW, font=small, anchor="mm")
    pixels, label = scale.bar(width // zoom)
    margin, thickness = max(6, width // 60), max(3, height // 130)
    right, bottom = width - margin, height - margin
    left = right - round(pixels * zoom)
    draw.rectangle((left - 3, bottom - thickness - 3, right + 3, bottom + 3), fill="black")
    draw.rectangle((left, bottom - thickness, right, bottom), fill="white")
    draw.text(
        ((left + right) / 2, bottom - thickness - 5),
        label,
        fill="white",
        font=_font(size),
        anchor="ms",
        stroke_width=2,
        stroke_fill="black",
    )
    position = margin
    for text, colour in legend:
        draw.rectangle(
            (position, height + 0.5 * size, position + size, height + 1.4 * size), fill=colour, outline="black"
        )
        draw.text((position + 1.4 * size, height + 0.95 * size), text, fill="black", font=_font(size), anchor="lm")
        position += round(2.6 * size + draw.textlength(text, font=_font(size)))
    return picture


def save_overlay(picture: PillowImage.Image, path: Path) -> None:
    """Write an overlay as PNG that prints at 300 dots per inch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, dpi=(DPI, DPI), compress_level=1)


# --- Matplotlib -------------------------------------------------------------------------------------------------


def new_figure(width_mm: float = 180.0, height_mm: float = 80.0) -> Any:
    """Return an empty figure in a journal's column width, with readable type and no box around the axes."""
    from matplotlib.figure import Figure

    mpl.rcParams.update(
        {
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "legend.fontsize": 7,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "classical",
        }
    )
    return Figure(figsize=(width_mm / 25.4, height_mm / 25.4), layout="constrained")


def panel_letters(axes: Sequence[Any]) -> None:
    """Put a, b, c, … at the upper left of the panels."""
    for letter, axis in zip("abcdefghij", axes, strict=False):
        axis.set_title(letter, loc="left", fontweight="bold")


def show_image(axis: Any, rgb: RGB, scale: Scale, title: str = "") -> None:
    """Show an image without ticks, with a scale bar in its lower right corner."""
    axis.imshow(rgb, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)
    height, width = rgb.shape[:2]
    pixels, label = scale.bar(width)
    y, right = height * 0.95, width * 0.96
    axis.plot([right - pixels, right], [y, y], color="black", linewidth=4, solid_capstyle="butt")
    axis.plot([right - pixels, right], [y, y], color="white", linewidth=2.5, solid_capstyle="butt")
    text = axis.text(right - pixels / 2, y - height * 0.02, label, color="white", ha="center", va="bottom", fontsize=7)
    from matplotlib.patheffects import withStroke

    text.set_path_effects([withStroke(linewidth=1.5, foreground="black")])
    if title:
        axis.set_title(title)


def count_panel(axis: Any, names: Sequence[str], counts: Sequence[int], what: str, colour: Colour = GREEN) -> None:
    """Show counts per image: a bar per image for up to 30 images, their distribution for more."""
    if len(counts) <= 30:
        axis.bar(range(len(counts)), counts, color=hexadecimal(colour))
        axis.set_xticks(range(len(names)), names, rotation=90 if len("".join(names)) > 30 else 0)
        axis.set_xlabel("image")
        axis.set_ylabel(f"{what} per image")
        return
    axis.hist(counts, 20, color=hexadecimal(colour), label=f"n = {len(counts)} images")
    axis.set_xlabel(f"{what} per image")
    axis.set_ylabel("images")
    axis.legend(frameon=False)


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG (300 dpi) and SVG; return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=DPI)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
