"""A table of a report as plain values: CSV for machines, Markdown and HTML for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

Value = str | int | float | None
DASH = "–"


@dataclass(frozen=True)
class Cell:
    """A value with the marks that the paper sets beside it († ‡ *), or with a text of its own (``45/0/0/3``)."""

    value: Value
    text: str | None = None
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """``digits`` after the point for numbers; ``None`` shows the value as it is. ``help`` explains the heading."""

    key: str
    title: str
    digits: int | None = None
    help: str = ""
    align: Literal["left", "right"] = "right"


@dataclass(frozen=True)
class Table:
    """One table. ``rows`` hold a :class:`Cell` or a bare value per column; absent values are ``None``, never 0."""

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: list[tuple[Cell | Value, ...]]
    notes: tuple[str, ...] = ()
    section: str = "paper"  # "paper": as published; "beyond": not in the paper; "strata"

    def text(self, column: Column, cell: Cell | Value) -> str:
        """Return what a person reads: rounded, with marks, a dash for absent."""
        marked = cell if isinstance(cell, Cell) else Cell(cell)
        return (marked.text if marked.text is not None else shown(marked.value, column.digits)) + marked.mark

    def to_csv(self) -> str:
        """Return unrounded values; a column that carries marks is followed by ``<key>_mark``."""
        rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]
        marked = [any(row[index].mark for row in rows) for index in range(len(self.columns))]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        header: list[str] = []
        for column, has_mark in zip(self.columns, marked, strict=True):
            header += [column.key, f"{column.key}_mark"] if has_mark else [column.key]
        writer.writerow(header)
        for row in rows:
            line: list[Value] = []
            for cell, has_mark in zip(row, marked, strict=True):
                value = cell.value if not _absent(cell.value) else ""
                if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
                    value = f"'{value}"  # a name must not become a formula of a spreadsheet
                line += [value, cell.mark] if has_mark else [value]
            writer.writerow(line)
        return stream.getvalue()

    def to_markdown(self) -> str:
        """Return title, caption, a pipe table and the notes."""
        lines = [f"### {_plain_markdown(self.title)}", "", _plain_markdown(self.caption), ""] if self.title else []
        lines.append("| " + " | ".join(_cell_markdown(column.title) for column in self.columns) + " |")
        lines.append("|" + "|".join("---:" if column.align == "right" else "---" for column in self.columns) + "|")
        for row in self.rows:
            texts = (self.text(column, cell) for column, cell in zip(self.columns, row, strict=True))
            lines.append("| " + " | ".join(_cell_markdown(text) for text in texts) + " |")
        lines += ["", *(f"- {_plain_markdown(note)}" for note in self.notes)] if self.notes else []
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return a ``<table>`` with caption and scopes; ``data-sort`` holds the unrounded value of each cell."""
        head = "".join(
            f'<th scope="col" class="{_class(column)}"{_title(column.help)}>{escape(column.title)}</th>'
            for column in self.columns
        )
        body = "".join(f"<tr>{self._row_html(row)}</tr>\n" for row in self.rows)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f'<table id="{escape(self.id)}" class="sortable"><caption>{escape(self.caption)}</caption>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>\n"
            + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        )

    def _row_html(self, row: Sequence[Cell | Value]) -> str:
        parts = []
        for index, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
            value = cell.value if isinstance(cell, Cell) else cell
            sort = "" if _absent(value) else f' data-sort="{escape(str(value))}"'
            tag, scope = ("th", ' scope="row"') if index == 0 else ("td", "")
            parts.append(f'<{tag}{scope} class="{_class(column)}"{sort}>{escape(self.text(column, cell))}</{tag}>')
        return "".join(parts)


def shown(value: Value, digits: int | None = None) -> str:
    """Format a value for a person; a number is rounded half to even in decimal, as printed tables do."""
    if value is None or _absent(value):
        return DASH
    if isinstance(value, bool | str) or digits is None:
        return str(value)
    return f"{value:.{digits}f}"


def _absent(value: Value) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _class(column: Column) -> str:
    return "number" if column.align == "right" else "text"


def _title(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""


def _cell_markdown(text: str) -> str:
    """Keep a cell in its row."""
    return _plain_markdown(text).replace("|", "\\|")


def _plain_markdown(text: str) -> str:
    """Make text of what Markdown would pass on as HTML."""
    return text.replace("<", "&lt;").replace("\n", " ")
