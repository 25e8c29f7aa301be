// The page: what the address asks for, the time shown, and the section of one job or machine.

const unpack = async (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
};

const hasData = (spec) => spec?.series.some((each) => each.mean.some((value) => value !== null));

// What the charts of one job or machine are made of: measures of its course, title, unit.
const COURSES = [
  [["cores"], "Busy cores", "cores"],
  [["memory"], "Memory", "bytes"],
  [["read", "write"], "Read and written", "rate"],
  [["gpu"], "GPU busy", "percent"],
];
const LINES = { cores: ["busy cores", 0], memory: ["in use", 4], read: ["read", 0], write: ["written", 1], gpu: ["busy", 2] };
const HOW = "Drag over a chart to zoom, double-click for the full recording; the time shown filters the tables too. Solid: mean. Pale: the highest sample. Dashed: capacity. Grey: no samples. Ticks below: events. Red lines: what went wrong.";

class Page {
  constructor(data) {
    this.data = data;
    this.holes = this.readHoles();
    this.view = { from: data.first ?? 0, to: data.last ?? 1 };
    this.whole = { ...this.view };
    this.one = document.getElementById("one");
    this.all = document.getElementById("all");
    this.range = document.getElementById("range");
    this.events = this.readEvents();
    for (const spec of Object.values(data.charts ?? {})) Object.assign(spec, { first: data.first, step: data.step });
    this.charts = Object.entries(data.charts ?? {}).filter(([, spec]) => hasData(spec)).map(([name, spec]) => this.chart(name, spec));
    document.getElementById("drawn")?.append(make("div", { class: "charts" }, ...this.charts.map((chart) => chart.figure)), make("p", { class: "soft small" }, HOW));
    document.querySelector(".bar").hidden = data.first === undefined;
    this.tables = {};
    for (const place of document.querySelectorAll("[data-table]")) {
      const name = place.dataset.table;
      this.tables[name] = new Table(name, data.tables[name], this);
      place.append(this.tables[name].element);
    }
    document.querySelectorAll("i[data-colour]").forEach((mark) => mark.replaceWith(swatch(mark.dataset.colour)));
    this.places = new Map((this.list()?.ids ?? []).map((id, at) => [id, at]));
    this.subject = null;
    this.shown = [];
    this.listen();
    this.follow();
  }

  list() { return this.data.tables[this.data.of]; }

  // Charts draw when they come into view.
  chart(name, spec) {
    const chart = new Chart(spec, this);
    chart.figure.dataset.chart = name;
    this.watcher ??= new IntersectionObserver((entries) => entries.forEach((entry) => {
      entry.target.chart.visible = entry.isIntersecting;
      if (entry.isIntersecting && entry.target.chart.stale) this.redraw();
    }), { rootMargin: "200px" });
    chart.figure.chart = chart;
    chart.stale = true;
    this.watcher.observe(chart.figure);
    return chart;
  }

  // Times without samples are rows of the table of gaps.
  readHoles() {
    const { gaps } = this.data.tables, kinds = gaps?.columns.find((column) => column.name === "kind")?.cells ?? [];
    return (gaps?.spans ?? []).filter((span, row) => span.length && kinds[row] === "no samples");
  }

  readEvents() {
    const { events } = this.data.tables;
    if (!events) return [];
    const cell = (name, row) => events.columns.find((column) => column.name === name)?.cells[row] ?? "";
    return events.spans.map((span, row) => [span[0], `${cell("subject", row)} ${cell("what", row)}`.trim(), events.wrong[row], events.about[row]]);
  }

  // Events as marks: all of them, or those of the job that is shown.
  marks() { return this.mine ?? this.events; }

  linkOf(name, spec, row) {
    if (spec.pages) return spec.pages[row];
    if (name === this.data.of) return `#${this.data.kind}=${encodeURIComponent(spec.ids[row])}`;
    if (spec.link) return `#${spec.link}=${encodeURIComponent(spec.columns[0].cells[row])}`;
    const key = spec.about?.[row];
    if (this.places.has(key)) return `#${this.data.kind}=${encodeURIComponent(key)}`;
    const { containers } = this.data.tables, box = containers && key ? containers.ids.indexOf(key) : -1;
    return box >= 0 ? `#jobs.container=${encodeURIComponent(containers.columns[0].cells[box])}` : null;
  }

  listen() {
    const ways = { "zoom-in": () => this.scale(1 / 2), "zoom-out": () => this.scale(2), "zoom-left": () => this.shift(-0.5), "zoom-right": () => this.shift(0.5), "zoom-all": () => this.zoom(this.whole.from, this.whole.to) };
    for (const [name, way] of Object.entries(ways)) document.getElementById(name).addEventListener("click", way);
    document.addEventListener("click", (event) => this.click(event));
    window.addEventListener("popstate", () => this.follow());
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("resize", () => { this.stale(); Object.values(this.tables).forEach((table) => table.render()); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); this.stale(); });
    window.addEventListener("beforeprint", () => this.print(true));
    window.addEventListener("afterprint", () => this.print(false));
  }

  print(on) {
    document.documentElement.toggleAttribute("data-print", on);
    readPalette();
    this.drawn().forEach((chart) => chart.draw());
    Object.values(this.tables).forEach((table) => table.print(on));
  }

  // A link within the page keeps the time shown, but for one that leads to a job or machine.
  click(event) {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const asked = link.getAttribute("href").slice(1), section = document.getElementById(asked);
    if (asked.startsWith(`${this.data.kind}=`) || link.dataset.back !== undefined) {
      if (!this.subject) this.back = this.address();
      history.pushState(null, "", `#${asked}`);
      this.follow();
    } else {
      const state = new URLSearchParams(this.subject ? this.back ?? "" : this.address());
      if (!section) new URLSearchParams(asked).forEach((value, key) => state.set(key, value));
      history.pushState(null, "", `#${state}`);
      this.follow();
      const target = section ?? document.getElementById(asked.split(".")[0]);
      target?.scrollIntoView();
      target?.querySelector("h2")?.focus({ preventScroll: true });
    }
  }

  // Shows what the address asks for.
  follow() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const wanted = asked.get(this.data.kind), place = this.places.get(wanted ?? "");
    const missing = document.getElementById("missing");
    missing.hidden = !wanted || place !== undefined;
    missing.textContent = `No ${this.data.kind} ${wanted} is on this page: all of it is shown.`;
    this.show(place ?? null);
    for (const [name, table] of Object.entries(this.tables)) {
      const choices = {};
      for (const column of table.spec.columns) if (asked.get(`${name}.${column.name}`)) choices[column.name] = asked.get(`${name}.${column.name}`);
      table.ask({ sort: asked.get(`${name}.sort`) ?? "", q: asked.get(`${name}.q`) ?? "", choices });
    }
    const [from, to] = ["from", "to"].map((name) => Date.parse(asked.get(name) ?? "") / 1000);
    this.zoom(from < to ? from : this.whole.from, from < to ? to : this.whole.to, false);
  }

  // What the address says of the page as it is.
  address() {
    const state = new URLSearchParams();
    if (this.subject !== null) state.set(this.data.kind, this.list().ids[this.subject]);
    if (!this.showsAll()) { state.set("from", inLink(this.view.from)); state.set("to", inLink(this.view.to)); }
    for (const [name, table] of Object.entries(this.tables)) {
      if (table.wish.sort) state.set(`${name}.sort`, table.wish.sort);
      if (table.wish.q) state.set(`${name}.q`, table.wish.q);
      for (const [column, value] of Object.entries(table.wish.choices)) if (value) state.set(`${name}.${column}`, value);
    }
    return state.toString();
  }

  remember() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => history.replaceState(null, "", `#${this.address()}`), 150);
  }

  showsAll() { return this.view.to - this.view.from >= this.whole.to - this.whole.from - 1e-6; }

  zoom(from, to, remember = true) {
    const { whole, view } = this, least = Math.min(whole.to - whole.from, 4 * this.finest());
    const span = Math.min(whole.to - whole.from, Math.max(least, to - from));
    view.from = Math.min(Math.max(whole.from, (from + to - span) / 2), whole.to - span);
    view.to = view.from + span;
    if (!this.showsAll()) { view.from = Math.round(view.from); view.to = Math.round(view.to); } // as the address has it
    const all = this.subject === null ? "Full recording" : `Whole ${this.data.kind}`;
    const begin = stamp(view.from), end = stampZone(view.to), day = begin.slice(0, 11);
    this.range.textContent = `${this.showsAll() ? `${all}: ` : ""}${begin} to ${end.startsWith(day) ? end.slice(day.length) : end}`;
    this.range.classList.toggle("unseen", this.showsAll()); // the head of the page says it
    document.getElementById("zoom-all").textContent = all;
    this.stale();
    if (this.subject === null) Object.values(this.tables).forEach((table) => table.update());
    if (remember) this.remember();
  }

  finest() { return Math.min(...this.drawn().map((chart) => chart.spec.step), (this.whole.to - this.whole.from) / 4); }

  scale(factor, middle = (this.view.from + this.view.to) / 2) { this.zoom(middle - (middle - this.view.from) * factor, middle + (this.view.to - middle) * factor); }

  shift(share) { this.zoom(this.view.from + share * (this.view.to - this.view.from), this.view.to + share * (this.view.to - this.view.from)); }

  drawn() { return this.subject === null ? this.charts : this.shown; }

  stale() {
    this.drawn().forEach((chart) => { chart.stale = true; });
    this.redraw();
  }

  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      for (const chart of this.drawn()) if (chart.stale && chart.visible) { chart.draw(); chart.stale = false; }
    });
  }

  point(time, own) { this.drawn().forEach((chart) => chart.point(time, chart === own)); }

  // The section of one job or machine in place of all others, or these again.
  show(place) {
    if (place === this.subject) return;
    const before = this.subject;
    this.subject = place;
    this.mine = null;
    this.shown.forEach((chart) => this.watcher.unobserve(chart.figure));
    this.shown = [];
    this.one.hidden = place === null;
    this.all.hidden = place !== null;
    this.whole = { from: this.data.first ?? 0, to: this.data.last ?? 1 };
    this.title ??= document.title;
    document.title = place === null ? this.title : `${this.nameOf(place)}: ${this.title}`;
    if (place !== null) this.tellOne(place);
    else if (before !== null) this.one.replaceChildren();
  }

  nameOf(place) { return `${this.data.kind} ${this.list().columns[0].cells[place]}`; }

  tellOne(place) {
    const detail = this.data.details[place] ?? {}, list = this.list(), { course } = detail;
    const spans = list.spans?.[place] ?? [];
    const length = course?.first === undefined ? 0 : course.step * Math.max(...Object.values(course).map((each) => each.mean?.length ?? 0));
    const ends = [...spans, ...(length ? [course.first, course.first + length] : [])];
    if (ends.length) this.whole = { from: Math.min(...ends), to: Math.max(...ends, Math.min(...ends) + 1) };
    this.mine = this.events.filter((event) => event[3] && detail.about?.includes(event[3]));
    const title = this.nameOf(place), head = make("h2", { tabindex: "-1", id: "one-title" }, title[0].toUpperCase() + title.slice(1));
    const back = make("a", { href: `#${this.back ?? ""}`, "data-back": "" }, `← All ${list.title.toLowerCase()} and charts`);
    const notes = make("div", { class: "notes" });
    notes.innerHTML = detail.notes ?? ""; // written and escaped with the page
    this.shown = this.chartsOfOne(detail);
    this.one.replaceChildren(make("p", {}, back), make("section", { "aria-labelledby": "one-title" }, head, this.factsOf(list, place), notes,
      make("div", { class: "charts" }, ...this.shown.map((chart) => chart.figure)), ...this.listsOfOne(detail)));
    window.scrollTo(0, 0);
    head.focus({ preventScroll: true });
  }

  factsOf(spec, row) {
    const known = spec.columns.slice(1).filter((column) => column.cells[row]);
    return make("dl", { class: "facts-of" }, ...known.map((column) => make("div", { class: column.cells[row].length > LONGEST && "whole" }, make("dt", {}, column.title), make("dd", {}, column.cells[row]))));
  }

  chartsOfOne({ course = {}, capacity = {} }) {
    const own = COURSES.map(([names, title, unit]) => {
      const series = names.filter((name) => course[name]?.mean.some((value) => value !== null)).map((name) => ({ name: LINES[name][0], colour: LINES[name][1], ...course[name] }));
      return series.length ? this.chart(`one-${names[0]}`, { title, unit, series, first: course.first, step: course.step, capacity: capacity[names[0]] ?? undefined, top: unit === "percent" ? 100 : undefined }) : null;
    });
    const meanwhile = this.data.kind === "job" ? ["cpu", "pressure"].filter((name) => hasData(this.data.charts[name])) : [];
    const machine = meanwhile.map((name) => this.chart(`meanwhile-${name}`, { ...this.data.charts[name], title: `The machine meanwhile: ${this.data.charts[name].title}`, wide: false }));
    return [...own.filter(Boolean), ...machine];
  }

  listsOfOne(detail) {
    const { containers, cards, events } = this.data.tables, found = [];
    if (detail.programs?.length) found.push(plainTable("Programs", ["program", "processes", "CPU time", "largest memory", "read", "written"], detail.programs, [false, true, true, true, true, true]));
    const box = containers && detail.about?.[1] ? containers.ids.indexOf(detail.about[1]) : -1;
    if (box >= 0) found.push(make("section", {}, make("h3", {}, `Container ${containers.columns[0].cells[box]}`), this.factsOf(containers, box)));
    const rowsOf = (spec, isMine) => spec.columns[0].cells.map((_, row) => row).filter(isMine).map((row) => spec.columns.map((column) => column.cells[row]));
    const titles = (spec) => [spec.columns.map((column) => column.title), spec.columns.map((column) => column.right)];
    if (detail.gpus?.length && cards) { const [heads, rights] = titles(cards); found.push(plainTable("GPUs", heads, rowsOf(cards, (row) => detail.gpus.includes(cards.ids[row])), rights)); }
    if (this.mine.length) { const [heads, rights] = titles(events); found.push(plainTable("Events", heads, rowsOf(events, (row) => events.about[row] && detail.about.includes(events.about[row])), rights)); }
    return found;
  }
}

unpack(document.getElementById("data").textContent).then((data) => {
  zones = data.zones ?? zones;
  document.querySelectorAll("h2").forEach((head) => head.setAttribute("tabindex", "-1"));
  readPalette();
  new Page(data);
  document.documentElement.dataset.ready = "true";
  requestAnimationFrame(() => setTimeout(() => performance.mark("ready"))); // drawn, in the browser's own timings
});
