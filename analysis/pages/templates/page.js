"use strict";
// Tables sort by a press on a heading; figures say what lies under the pointer, the finger or the arrow keys.

const trials = JSON.parse(document.getElementById("trials")?.textContent ?? "{}");

function pressed(heading) {
  const before = heading.getAttribute("aria-sort");
  const rising = before ? before === "descending" : !heading.classList.contains("figure");
  sortBy(heading, rising ? "ascending" : "descending");
}

function sortBy(heading, order) {
  const body = heading.closest("table").tBodies[0], column = heading.cellIndex;
  const direction = order === "ascending" ? 1 : -1, figures = heading.classList.contains("figure");
  const keyed = [...body.rows].map(row => {
    const text = row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const number = text === "" ? NaN : Number(text.replaceAll(",", ""));
    return { row, text, number };
  });
  keyed.sort((a, b) => {
    if (!figures) return direction * a.text.localeCompare(b.text, undefined, { numeric: true });
    if (Number.isNaN(a.number) || Number.isNaN(b.number)) return Number.isNaN(a.number) - Number.isNaN(b.number);
    return direction * (a.number - b.number);
  });
  for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  body.append(...keyed.map(one => one.row));
}

// Nothing that a spreadsheet would take for a formula (OWASP, "CSV Injection"); a figure may have a sign.
function harmless(text) {
  return /^[=@+-]/.test(text) && !/^[+-][\d.,]+( \S+)?$/.test(text) ? `'${text}` : text;
}

// What stands in lines of their own is set apart: a system, who submitted it, its devices.
function plain(cell) {
  const parts = cell.querySelector("span") ? [...cell.children] : [cell];
  return harmless(parts.map(part => part.textContent.trim().replace(/\s+/g, " ")).join("; "));
}

async function copy(button) {
  const table = button.parentNode.querySelector("table");
  const shown = [...table.rows].filter(row => !row.hidden);
  const mark = document.querySelector(".mark"), lines = shown.map(row => [...row.cells].map(plain).join("\t"));
  const text = [...mark ? [mark.textContent] : [], ...lines].join("\n");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {  // not allowed here: leave the table selected, so that the keyboard copies it
    getSelection().selectAllChildren(table);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function describe(number) {
  const trial = trials[number];
  if (!trial) return `Trial ${number}`;
  return trial;
}

class Plot {
  constructor(plot) {
    this.plot = plot;
    this.data = JSON.parse(plot.querySelector("script").textContent);
    this.tip = plot.querySelector(".tip");
    this.at = -1;
    plot.addEventListener("pointermove", event => this.point(event));
    plot.addEventListener("pointerdown", event => this.point(event));
    plot.addEventListener("pointerleave", () => this.hide());
    plot.addEventListener("blur", () => this.hide());
    plot.addEventListener("keydown", event => this.press(event));
  }

  get svg() {
    return [...this.plot.querySelectorAll(":scope > svg")].find(svg => svg.getClientRects().length);
  }

  get marks() {
    return this.data[this.svg.classList.contains("narrow") ? "narrow" : "wide"];
  }

  point(event) {
    const svg = this.svg, box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const { left, right, height } = this.marks;
    let best = -1, least = (28 * scale) ** 2;
    for (let i = 0; i < left.length; i++) {
      const dx = Math.max(0, left[i] - x, x - right[i]);
      const dy = y - height[i];
      const distance = this.data.vertical ? dx * dx + dy * dy : dx * dx;
      if (distance < least) { least = distance; best = i; }
    }
    if (best < 0) this.hide(); else this.show(best);
  }

  press(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step || !this.marks.left.length) return;
    event.preventDefault();
    this.show((this.at + step + this.marks.left.length) % this.marks.left.length);
  }

  show(i) {
    if (i === this.at) return;
    this.at = i;
    const { left, right, height } = this.marks, svg = this.svg;
    const x = (left[i] + right[i]) / 2, y = height[i], name = this.data.names[i];
    this.tip.textContent = this.data.labels ? this.data.labels[name] : describe(name);
    this.tip.hidden = false;
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const wide = this.plot.clientWidth, own = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(wide - own, x * scale - own / 2))}px`;
    const above = y * scale - this.tip.offsetHeight - 14;
    this.tip.style.top = `${above > -40 ? above : y * scale + 14}px`;
    this.overlay(svg, i, x, y);
  }

  overlay(svg, i, x, y) {
    svg.querySelectorAll(".pointer, .ancestors").forEach(old => old.remove());
    const make = (tag, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      svg.append(element);
    };
    const { left, right, height } = this.marks;
    if (this.data.parents) {
      const points = [];
      for (let at = i; at >= 0 && points.length < 5000; at = this.data.parents[at])
        points.push(`${left[at]},${height[at]}`);
      make("polyline", { class: "ancestors", points: points.join(" ") });
    }
    if (right[i] - left[i] > 8)
      make("path", { class: "pointer", d: `M${left[i]},${y}H${right[i]}` });
    else
      make("circle", { class: "pointer", cx: x, cy: y, r: 5 });
  }

  hide() {
    this.at = -1;
    this.tip.hidden = true;
    this.plot.querySelectorAll(".pointer, .ancestors").forEach(old => old.remove());
  }
}

function filter(form) {
  const wanted = [...form.querySelectorAll("select")].filter(select => select.value);
  let shown = 0;
  for (const row of document.querySelectorAll(".ranking tbody tr")) {
    row.hidden = wanted.some(select => row.dataset[select.name] !== select.value);
    shown += !row.hidden;
  }
  for (const list of document.querySelectorAll(".list"))
    list.hidden = !list.querySelector("tbody tr:not([hidden])");
  form.querySelector("output").textContent = `${shown} shown`;
}

// A phone shows no scroll bar: a table with columns out of sight says so.
const widths = new ResizeObserver(entries => {
  for (const { target } of entries) {
    const box = target.closest(".scroll");
    box.classList.toggle("wider", box.scrollWidth > box.clientWidth + 1);
  }
});

function start(root) {
  root.querySelectorAll(".scroll, .scroll > table").forEach(one => widths.observe(one));
  root.querySelectorAll("th button").forEach(button =>
    button.addEventListener("click", () => pressed(button.closest("th"))));
  root.querySelectorAll(".copy").forEach(button => button.addEventListener("click", () => copy(button)));
  root.querySelectorAll(".plot").forEach(plot => { if (plot.querySelector("script")) new Plot(plot); });
  root.querySelectorAll("form.filters").forEach(form => {
    form.addEventListener("change", () => filter(form));
    filter(form);
  });
}

// Only a page that is served while the run goes on has this. What a reader has opened, sorted, scrolled or stands
// on stays. What is pressed at this moment waits for the next time: a click on what was replaced in between is lost.
async function refresh(main) {
  const stale = document.getElementById("stale");
  let seconds = Number(main.dataset.refresh), trouble = "";
  try {
    const answer = await fetch(location.href, { cache: "no-store" }), text = await answer.text();
    const next = new DOMParser().parseFromString(text, "text/html"), content = next.querySelector("main");
    if (!content) trouble = text.trim();
    else if (!main.querySelector(".tip:not([hidden]), :active")) {
      const restore = remembered(main);
      main.replaceChildren(...content.childNodes);
      document.title = next.title;
      main.dataset.at = new Date().toLocaleTimeString();
      seconds = Number(content.dataset.refresh);
      start(main);
      restore();
    }
  } catch {  // the server is gone, perhaps for a moment: what was shown last stays
    trouble = "The server does not respond";
  }
  if (trouble) seconds *= 2;
  stale.hidden = !trouble;
  stale.textContent = trouble && `${trouble}. The page below is from ${main.dataset.at}.`;
  main.dataset.refresh = Math.min(seconds, 300);
  setTimeout(() => refresh(main), 1000 * Math.min(seconds, 300));
}

// By section, for sections come and go; within one, everything keeps its place.
function remembered(main) {
  const restores = [...main.querySelectorAll(":scope > [id]")].map(rememberedIn);
  return () => restores.forEach(restore => restore());
}

function rememberedIn(section) {
  const all = (selector, now = section) => [...now.querySelectorAll(selector)];
  const stops = "a[href], button, select, summary, [tabindex]";
  const at = all(stops).indexOf(document.activeElement);
  const open = all("details").map(one => one.open);
  const left = all(".scroll").map(box => box.scrollLeft);
  const sorted = all("table").map(table => {
    const heading = table.querySelector("th[aria-sort]");
    return heading && [heading.cellIndex, heading.getAttribute("aria-sort")];
  });
  return () => {
    const now = document.getElementById(section.id);
    if (!now) return;
    all("details", now).forEach((one, i) => { one.open = open[i] ?? false; });
    all(".scroll", now).forEach((box, i) => { box.scrollLeft = left[i] ?? 0; });
    all("table", now).forEach((table, i) => {
      if (sorted[i]) sortBy(table.tHead.rows[0].cells[sorted[i][0]], sorted[i][1]);
    });
    all(stops, now)[at]?.focus({ preventScroll: true });
  };
}

start(document);
document.querySelectorAll("main[data-refresh]").forEach(main => {
  main.dataset.at = new Date().toLocaleTimeString();
  setTimeout(() => refresh(main), 1000 * Number(main.dataset.refresh));
});
