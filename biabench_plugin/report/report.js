"use strict";
// Sort any table by any column, with the mouse or the keyboard. Everything else on the page works without scripts.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = table.tHead ? Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells) : [];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("number") || head.classList.contains("heat");
      const down = head.getAttribute("aria-sort") === (numeric ? "none" : "ascending") ||
        (numeric && head.getAttribute("aria-sort") === "ascending");
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        const text = cell ? (cell.dataset.sort ?? cell.textContent.trim()) : "";
        const number = parseFloat(text);
        return [text, text !== "" && !Number.isNaN(number) ? number : null];
      };
      const rows = Array.from(body.rows).map((row) => [row, ...key(row)]);
      const sign = down ? -1 : 1;
      rows.sort(([, text, value], [, otherText, otherValue]) => {
        if (value !== null && otherValue !== null) return sign * (value - otherValue);
        if (value !== null || otherValue !== null) return value === null ? 1 : -1; // what has no value stays below
        return sign * text.localeCompare(otherText);
      });
      body.append(...rows.map(([row]) => row));
    });
  });
}
