// The review page. Everything that comes from an agent is put on the page as text (textContent), never as markup.
"use strict";

const TABS = [
  ["report", "Report", ["report", "text"]],
  ["figure", "Figures", ["figure"]],
  ["table", "Tables", ["table"]],
  ["code", "Code", ["code"]],
  ["log", "Log", ["log"]],
  ["instruction", "Instruction", ["instruction"]],
  ["files", "All files", null],
];
const FIGURES_AT_ONCE = 12;
const state = { review: null, reviewer: "", answers: {}, run: 0, item: 0, tab: "report", file: {}, pending: new Map(), drawn: 0 };
const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

async function fetchJson(address, options) {
  const response = await fetch(address, options);
  const value = await response.json();
  if (!response.ok) throw new Error(value.error || response.statusText);
  return value;
}

const run = () => state.review.runs[state.run];
const item = () => state.review.items[run().items[state.item]];
const given = (runId, number) => (state.answers[runId] || {})[number] || { answer: null, reason: null, note: "" };
const answered = (one) => one.items.filter((number) => given(one.id, number).answer).length;

// --- answers ---------------------------------------------------------------------------------------------------------

function put(runId, number, change) {
  const value = { ...given(runId, number), ...change };
  (state.answers[runId] ||= {})[number] = value;
  state.pending.set(`${runId}/${number}`, {
    reviewer: state.reviewer, run: runId, item: number, answer: value.answer, reason: value.reason, note: value.note,
  });
  flush();
}

let flushing = false;
async function flush() {
  if (flushing) return;
  flushing = true;
  while (state.pending.size) {
    const [key, body] = state.pending.entries().next().value;
    $("saved").className = "";
    $("saved").textContent = "saving …";
    try {
      await fetchJson("/answer", {
        method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
      if (state.pending.get(key) === body) state.pending.delete(key);
      $("saved").textContent = `saved ${new Date().toLocaleTimeString()}`;
    } catch (error) {
      $("saved").className = "bad";
      $("saved").textContent = `not saved, trying again: ${error.message}`;
      await new Promise((wait) => setTimeout(wait, 2000));
    }
  }
  flushing = false;
}

function answer(value, reason) {
  saveNote();
  put(run().id, item().number, { answer: value, reason: reason || null });
  if (value && state.item + 1 < run().items.length) state.item += 1;
  showItem();
}

let noteTimer = null;
let noteFor = null;
function saveNote() {
  clearTimeout(noteTimer);
  if (noteFor === null) return;
  const [runId, number] = noteFor;
  if ($("note").value !== given(runId, number).note) put(runId, number, { note: $("note").value });
}

// --- the question ----------------------------------------------------------------------------------------------------

function go(position) {
  saveNote();
  state.item = Math.max(0, Math.min(run().items.length - 1, position));
  showItem();
}

function goRun(position) {
  if (position < 0 || position >= state.review.runs.length) return;
  saveNote();
  state.run = position;
  const open = run().items.findIndex((number) => !given(run().id, number).answer);
  state.item = Math.max(0, open);
  state.file = {};
  showItem();
  showTabs();
  showPane();
}

function goUnanswered() {
  const runs = state.review.runs;
  for (let step = 0; step <= runs.length; step += 1) {
    const position = (state.run + step) % runs.length;
    const start = step === 0 ? state.item + 1 : 0;
    const open = runs[position].items.findIndex((number, i) => i >= start && !given(runs[position].id, number).answer);
    if (open >= 0) {
      if (position !== state.run) goRun(position);
      go(open);
      return;
    }
  }
}

function showItem() {
  const one = item();
  const now = given(run().id, one.number);
  $("item-head").textContent = `${one.title} · item ${one.number} · ${one.severity}`;
  $("statement").textContent = one.statement;
  const absence = { fail: "counts as no", unknown: "cannot be told: skip" }[one.absence] || one.absence;
  const rows = [["Look for", one.evidence], ["Nothing shows it", absence], ["Does not apply if", one.unless]];
  $("guidance").replaceChildren(
    ...rows.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", { textContent: name }), make("dd", { textContent: text })]),
  );
  for (const button of $("answers").children) {
    const same = now.answer === button.dataset.answer && (now.answer !== "skip" || now.reason === button.dataset.reason);
    button.setAttribute("aria-pressed", String(same));
  }
  noteFor = [run().id, one.number];
  if (document.activeElement !== $("note") || $("note").value !== now.note) $("note").value = now.note;
  showItems();
  showProgress();
}

function showItems() {
  let section = "";
  const rows = [];
  run().items.forEach((number, position) => {
    const one = state.review.items[number];
    if (one.section !== section) {
      section = one.section;
      rows.push(make("li", {}, make("h3", { textContent: one.title })));
    }
    const now = given(run().id, number);
    const word = now.answer === "skip" && now.reason === "does_not_apply" ? "n/a" : now.answer || "";
    const button = make("button", {}, make("span", { className: "soft", textContent: String(number) }),
      make("span", { className: "text", textContent: one.statement, title: one.statement }),
      make("span", { className: now.answer || "", textContent: word + (now.note ? " ✎" : "") }));
    button.dataset.item = number;
    button.setAttribute("aria-current", String(position === state.item));
    button.addEventListener("click", () => go(position));
    rows.push(make("li", {}, button));
  });
  $("items").replaceChildren(...rows);
  $("items").querySelector("[aria-current=true]").scrollIntoView({ block: "nearest" });
}

function showProgress() {
  const runs = state.review.runs;
  const done = runs.reduce((sum, one) => sum + answered(one), 0);
  const all = runs.reduce((sum, one) => sum + one.items.length, 0);
  $("progress").max = all;
  $("progress").value = done;
  $("count").textContent = `${done} of ${all}`;
  if ($("runs").options.length !== runs.length) {
    $("runs").replaceChildren(...runs.map((one, i) => make("option", { value: String(i) })));
  }
  runs.forEach((one, i) => {
    $("runs").options[i].textContent = `${one.id} · ${one.label} · ${answered(one)}/${one.items.length}`;
  });
  $("runs").value = String(state.run);
}

// --- the evidence ----------------------------------------------------------------------------------------------------

const isDeliverable = (file) => Number(file.facts.startsWith("deliverable "));
const filesOf = (tab) => {
  const kinds = TABS.find(([name]) => name === tab)[2];
  const found = run().files.filter((file) => !kinds || kinds.includes(file.kind));
  if (tab === "figure") return [...found].sort((one, other) => isDeliverable(one) - isDeliverable(other));
  if (tab !== "report") return found;
  const rank = (file) => (file.path.endsWith(".md") ? 0 : file.kind === "report" ? 1 : 2);
  return [...found].sort((one, other) => rank(one) - rank(other));
};

function showTabs() {
  $("tabs").replaceChildren(...TABS.map(([name, title], position) => {
    const count = filesOf(name).length;
    const button = make("button", {}, make("kbd", { textContent: String(position + 1) }), ` ${title} ${count}`);
    button.dataset.tab = name;
    button.disabled = !count;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-selected", String(name === state.tab));
    button.addEventListener("click", () => openTab(name));
    return button;
  }));
}

function openTab(name) {
  if (!filesOf(name).length) return;
  state.tab = name;
  showTabs();
  showPane();
}

const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`);

function about(file, tag) {
  const node = make(tag, { className: "about" }, [file.path, size(file.size), file.facts].filter(Boolean).join(" · "));
  if (file.note) node.append(" · ", make("span", { className: "note", textContent: file.note }));
  return node;
}

async function showPane() {
  const turn = (state.drawn += 1);
  const pane = $("pane");
  const files = filesOf(state.tab);
  if (state.tab === "files") {
    pane.replaceChildren(fileList());
  } else if (!files.length) {
    const first = TABS.find(([name]) => filesOf(name).length);
    if (first && first[0] !== state.tab) openTab(first[0]);
    else pane.replaceChildren(make("p", { className: "soft", textContent: "This run left nothing to see." }));
    return;
  } else if (state.tab === "figure") {
    pane.replaceChildren();
    addFigures(pane, files, state.file.figure || 0);
  } else {
    const position = Math.min(state.file[state.tab] || 0, files.length - 1);
    pane.replaceChildren(picker(files, position), about(files[position], "p")); // nothing of the file before stays
    let content;
    try {
      content = await show(files[position]);
    } catch (error) {
      content = make("p", { className: "bad", textContent: `cannot be shown: ${error.message}` });
    }
    if (turn !== state.drawn) return;
    pane.append(content);
  }
  pane.scrollTop = 0;
}

function picker(files, position) {
  const select = make("select", { ariaLabel: "File" }, ...files.map((file, i) => make("option", { value: String(i), textContent: file.path })));
  select.value = String(position);
  select.addEventListener("change", () => openFile(Number(select.value)));
  const buttons = [["‹", -1, "Previous file ( , )"], ["›", 1, "Next file ( . )"]].map(([text, step, title]) => {
    const button = make("button", { textContent: text, title });
    button.addEventListener("click", () => openFile(position + step));
    return button;
  });
  return make("div", { className: "pick" }, buttons[0], select, buttons[1]);
}

function openFile(position) {
  const files = filesOf(state.tab);
  if (position < 0 || position >= files.length) return;
  state.file[state.tab] = position;
  showPane();
}

async function show(file) {
  if (file.stored === null) return make("p", { className: "soft", textContent: "Only the entry is shown." });
  return file.kind === "table" ? showTable(file) : showText(file);
}

async function showText(file) {
  const address = (start) => `/text/${run().id}/${file.number}?start=${start}`;
  const box = make("div");
  const pre = make("pre", { className: file.kind === "code" ? "code" : "" });
  const more = make("button", { className: "more" });
  const add = (part) => {
    if (file.kind === "code") pre.append(...part.text.replace(/\n$/, "").split("\n").map((line) => make("span", { textContent: line })));
    else pre.append(part.text);
    const rest = part.total - part.start - part.text.length;
    more.hidden = rest <= 0;
    more.textContent = `show more (${rest} characters)`;
    more.onclick = async () => add(await fetchJson(address(part.start + part.text.length)));
  };
  add(await fetchJson(address(0)));
  box.append(pre, more);
  return box;
}

async function showTable(file) {
  const address = (start) => `/table/${run().id}/${file.number}?start=${start}`;
  const first = await fetchJson(address(0));
  const head = make("thead", {}, make("tr", {}, ...(first.rows[0] || []).map((cell) => make("th", { textContent: cell }))));
  const body = make("tbody");
  const more = make("button", { className: "more" });
  const add = (part, skip) => {
    body.append(...part.rows.slice(skip).map((row) => make("tr", {}, ...row.map((cell) => make("td", { textContent: cell })))));
    const rest = part.total - part.start - part.rows.length;
    more.hidden = rest <= 0;
    more.textContent = `show more (${rest} rows)`;
    more.onclick = async () => add(await fetchJson(address(part.start + part.rows.length)), 0);
  };
  add(first, 1);
  const nodes = [make("div", { className: "scroll" }, make("table", {}, head, body)), more];
  if (first.columns > first.shown_columns) nodes.unshift(make("p", { className: "about", textContent: `the first ${first.shown_columns} of ${first.columns} columns` }));
  return make("div", {}, ...nodes);
}

function addFigures(pane, files, start) {
  const shown = files.slice(start, start + FIGURES_AT_ONCE);
  pane.append(...shown.map((file) => {
    const figure = make("figure");
    if (file.stored !== null) {
      const image = make("img", { src: `/image/${run().id}/${file.number}`, alt: file.path, loading: "lazy" });
      image.addEventListener("click", () => figure.classList.toggle("full"));
      figure.append(image);
    }
    figure.append(about(file, "figcaption"));
    return figure;
  }));
  if (start > 0) {
    const all = make("button", { className: "more", textContent: "show all figures" });
    all.addEventListener("click", () => { state.file.figure = 0; showPane(); });
    pane.prepend(all);
  }
  const rest = files.length - start - shown.length;
  if (rest > 0) {
    const more = make("button", { className: "more", textContent: `show more (${rest} figures)` });
    more.addEventListener("click", () => { more.remove(); addFigures(pane, files, start + shown.length); });
    pane.append(more);
  }
}

function fileList() {
  const rows = run().files.map((file) => {
    const open = make("button", { textContent: file.path });
    open.addEventListener("click", () => {
      const [name] = TABS.find(([, , kinds]) => kinds && kinds.includes(file.kind)) || ["files"];
      if (name === "files") return;
      state.file[name] = filesOf(name).indexOf(file);
      openTab(name);
    });
    return make("tr", {}, make("td", { className: "path" }, open), make("td", { textContent: file.kind }),
      make("td", { textContent: size(file.size) }), make("td", { textContent: file.facts }), make("td", { textContent: file.note }));
  });
  const head = make("tr", {}, ...["file", "kind", "size", "what it is", "note"].map((text) => make("th", { textContent: text })));
  const box = make("div", {}, make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
  if (run().left_out.length) {
    box.append(make("p", { className: "about", textContent: "Left out:" }), make("ul", { className: "about" }, ...run().left_out.map((text) => make("li", { textContent: text }))));
  }
  return box;
}

// --- start -----------------------------------------------------------------------------------------------------------

async function enter(name) {
  const found = await fetchJson(`/answers?reviewer=${encodeURIComponent(name)}`);
  state.reviewer = name;
  state.answers = found.answers;
  sessionStorage.setItem("reviewer", name);
  $("reviewer").textContent = name;
  const open = state.review.runs.findIndex((one) => answered(one) < one.items.length);
  goRun(Math.max(0, open));
}

function ask() {
  saveNote();
  $("name").value = state.reviewer;
  $("name-problem").textContent = "";
  if (!$("who").open) $("who").showModal();
}

const KEYS = {
  y: () => answer("yes"), n: () => answer("no"), s: () => answer("skip", "cannot_tell"), x: () => answer("skip", "does_not_apply"),
  c: () => answer(null), m: () => $("note").focus(), u: goUnanswered,
  j: () => go(state.item + 1), k: () => go(state.item - 1), ArrowDown: () => go(state.item + 1), ArrowUp: () => go(state.item - 1),
  "]": () => goRun(state.run + 1), "[": () => goRun(state.run - 1), l: () => goRun(state.run + 1), h: () => goRun(state.run - 1),
  ".": () => openFile((state.file[state.tab] || 0) + 1), ",": () => openFile((state.file[state.tab] || 0) - 1),
  "?": () => $("keys").showModal(),
};
TABS.forEach(([name], position) => { KEYS[String(position + 1)] = () => openTab(name); });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !state.reviewer || document.querySelector("dialog[open]")) return;
  if (event.target === $("note")) {
    if (event.key === "Escape") { saveNote(); $("statement").focus(); }
    return;
  }
  if (event.target.tagName === "SELECT" && event.key.startsWith("Arrow")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});
for (const button of $("answers").children) {
  button.addEventListener("click", () => answer(button.dataset.answer, button.dataset.reason));
}
$("note").addEventListener("input", () => { clearTimeout(noteTimer); noteTimer = setTimeout(saveNote, 500); });
$("note").addEventListener("blur", () => { saveNote(); showItems(); });
$("runs").addEventListener("change", () => { goRun(Number($("runs").value)); $("statement").focus(); });
$("previous-run").addEventListener("click", () => goRun(state.run - 1));
$("next-run").addEventListener("click", () => goRun(state.run + 1));
$("reviewer").addEventListener("click", ask);
$("help").addEventListener("click", () => $("keys").showModal());
$("who").addEventListener("cancel", (event) => { if (!state.reviewer) event.preventDefault(); });
$("who").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await enter($("name").value.trim());
    $("who").close();
  } catch (error) {
    $("name-problem").textContent = error.message;
  }
});
window.addEventListener("beforeunload", (event) => { saveNote(); if (state.pending.size) event.preventDefault(); });

(async () => {
  state.review = await fetchJson("/review");
  const name = state.review.reviewer || sessionStorage.getItem("reviewer");
  if (name) await enter(name).catch(ask); else ask();
})();
