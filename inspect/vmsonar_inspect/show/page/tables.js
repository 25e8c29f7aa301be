// Tables that sort, search and filter; of many rows only those in view are in the document.

const ALL_AT_ONCE = 60; // so many rows need no scrolling of their own
const PRINTED = 200;
const LONGEST = 44; // characters of a cell, longer ones end in an ellipsis and show whole when pointed at

class Table {
  // `wish` is what the reader asked of this table: { sort, q, choices }; `stage` has the time shown, links, and takes changes.
  constructor(name, spec, stage) {
    this.name = name;
    this.spec = spec;
    this.stage = stage;
    this.rows = spec.columns[0]?.cells.length ?? 0;
    this.wish = { sort: "", q: "", choices: {} };
    this.present = new Map();
    this.order = [];
    this.build();
  }

  build() {
    const { spec, name } = this;
    this.said = make("p", { class: "count soft small", role: "status" });
    this.tools = make("div", { class: "tools" });
    if (this.rows > 5) this.tools.append(this.searchBox(), ...spec.columns.filter((column) => column.choice).map((column) => this.choiceBox(column)).filter(Boolean));
    this.tools.append(this.said);
    const heads = spec.columns.map((column) => this.headCell(column));
    this.body = make("tbody");
    this.above = make("tbody", { "aria-hidden": "true" }, make("tr", {}, make("td", { colspan: heads.length })));
    this.below = this.above.cloneNode(true);
    const widths = spec.columns.map((column) => Math.min(LONGEST, Math.max(column.title.length + 2, ...column.cells.slice(0, 2000).map((cell) => cell.length))));
    const columns = make("colgroup", {}, ...widths.map((width) => { const column = make("col"); column.style.width = `calc(${width}ch + 20px)`; return column; }));
    this.table = make("table", { "aria-rowcount": this.rows + 1, "aria-label": spec.title }, columns, make("thead", {}, make("tr", { "aria-rowindex": 1 }, ...heads)), this.above, this.body, this.below);
    this.table.style.width = `max(100%, calc(${widths.reduce((sum, width) => sum + width, 0)}ch + ${20 * widths.length}px))`;
    this.region = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${spec.title}, table` }, this.table);
    this.region.addEventListener("scroll", () => this.render(), { passive: true });
    const notes = [spec.note, spec.rest].filter(Boolean).map((words) => make("p", { class: "soft small" }, words));
    this.element = make("div", { class: "listed", id: `${name}-table` }, this.tools, make("div", { class: "frame" }, this.region), ...notes);
  }

  searchBox() {
    this.search = make("input", { type: "search", placeholder: "Search", "aria-label": `Search ${this.spec.title}`, autocomplete: "off" });
    this.search.addEventListener("input", () => { this.wish.q = this.search.value; this.changed(); });
    return this.search;
  }

  choiceBox(column) {
    const counts = new Map();
    for (const cell of column.cells) counts.set(cell, (counts.get(cell) ?? 0) + 1);
    if (counts.size < 2) return null;
    const values = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
    const options = values.filter(([value]) => value).map(([value, count]) => make("option", { value }, `${value} (${count})`));
    column.select = make("select", { "aria-label": `${column.title} in ${this.spec.title}` }, make("option", { value: "" }, `Any ${column.title}`), ...options);
    column.select.addEventListener("change", () => { this.wish.choices[column.name] = column.select.value; this.changed(); });
    return column.select;
  }

  // Figures begin with the largest, words with the first of the alphabet; the third time brings back the page's own order.
  headCell(column) {
    const button = make("button", { type: "button" }, column.title || " ");
    const ways = column.keys ? [`-${column.name}`, column.name, ""] : [column.name, `-${column.name}`, ""];
    button.addEventListener("click", () => { this.wish.sort = ways[(ways.indexOf(this.wish.sort) + 1) % 3]; this.changed(); });
    column.head = make("th", { scope: "col", class: column.right && "right" }, button);
    return column.head;
  }

  changed() {
    this.region.scrollTop = 0;
    this.update();
    this.stage.remember();
  }

  // Takes over what a link asks for.
  ask(wish) {
    this.wish = wish;
    if (this.search) this.search.value = wish.q;
    for (const column of this.spec.columns) if (column.select) column.select.value = wish.choices[column.name] ?? "";
  }

  text(row) {
    this.texts ??= Array.from({ length: this.rows }, (_, at) => this.spec.columns.map((column) => column.cells[at]).join("\n").toLowerCase());
    return this.texts[row];
  }

  wasThere(row) {
    const [begin, end] = this.spec.spans[row], { from, to } = this.stage.view;
    if (this.stage.showsAll()) return true;
    return begin === undefined ? this.others?.has(this.spec.columns[0].cells[row]) ?? true : begin <= to && end >= from;
  }

  // Of a user or program: the names that the jobs of the time shown have.
  namesOfOthers() {
    const [name, column] = (this.spec.link || ".").split("."), other = this.stage.tables[name];
    const cells = other?.spec.columns.find((each) => each.name === column)?.cells;
    return cells && !other.spec.rest ? new Set(cells.filter((_, row) => other.wasThere(row))) : null;
  }

  update() {
    const words = this.wish.q.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = this.spec.columns.filter((column) => this.wish.choices[column.name]);
    this.order = [];
    this.others = this.namesOfOthers();
    let there = 0;
    for (let row = 0; row < this.rows; row += 1) {
      if (!this.wasThere(row)) continue;
      there += 1;
      if (chosen.some((column) => column.cells[row] !== this.wish.choices[column.name])) continue;
      if (words.some((word) => !this.text(row).includes(word))) continue;
      this.order.push(row);
    }
    this.sort();
    this.count(there);
    this.present.forEach((line) => line.remove());
    this.present.clear();
    this.render();
  }

  sort() {
    const { sort } = this.wish, down = sort.startsWith("-"), name = down ? sort.slice(1) : sort;
    for (const column of this.spec.columns) {
      const way = column.name !== name ? "none" : down ? "descending" : "ascending";
      column.head.setAttribute("aria-sort", way);
    }
    const column = this.spec.columns.find((each) => each.name === name);
    if (!column) return;
    const { keys, cells } = column, sign = down ? -1 : 1, words = new Intl.Collator("en", { numeric: true });
    const isUnknown = (row) => (keys ? keys[row] === null : !cells[row]);
    this.order.sort((a, b) => isUnknown(a) - isUnknown(b) || sign * (keys ? keys[a] - keys[b] : words.compare(cells[a], cells[b])) || a - b);
  }

  count(there) {
    const shown = this.order.length.toLocaleString("en"), all = this.spec.count.toLocaleString("en");
    const some = this.order.length < this.spec.count;
    const when = there < this.rows ? " in the time shown; their figures are of the full recording" : "";
    this.said.textContent = some ? `${shown} of ${all}${when}` : this.search ? `${all} rows` : "";
    this.element.dataset.shown = this.order.length;
  }

  render() {
    const total = this.order.length, many = total > ALL_AT_ONCE && !this.printing;
    this.region.classList.toggle("tall", many);
    const height = this.height ??= this.body.firstElementChild?.offsetHeight || undefined;
    const first = many && height ? Math.max(0, Math.floor(this.region.scrollTop / height) - 8) : 0;
    const last = many ? Math.min(total, first + (height ? Math.ceil(this.region.clientHeight / height) + 16 : 40)) : Math.min(total, this.printing ? PRINTED : total);
    const wanted = new Set(this.order.slice(first, last));
    // A line that has the focus stays in the document, or the keyboard would lose its place.
    const focused = this.order.indexOf([...this.present].find(([, line]) => line.contains(document.activeElement))?.[0]);
    const above = focused >= 0 && focused < first, below = focused >= last;
    if (above || below) wanted.add(this.order[focused]);
    for (const [row, line] of this.present) if (!wanted.has(row)) { line.remove(); this.present.delete(row); }
    let before = above ? this.present.get(this.order[focused]).nextElementSibling : this.body.firstElementChild;
    for (let at = first; at < last; at += 1) {
      const row = this.order[at];
      let line = this.present.get(row);
      if (!line) { line = this.line(row, at); this.present.set(row, line); this.body.insertBefore(line, before); } else before = line.nextElementSibling;
    }
    const space = (body, rows) => { body.hidden = !rows; body.firstElementChild.style.height = `${rows * (this.height ?? 31)}px`; };
    space(this.above, first - above);
    space(this.below, many ? total - last - below : 0);
    if (!this.height && this.body.firstElementChild?.offsetHeight) { this.height = this.body.firstElementChild.offsetHeight; if (many) this.render(); }
    const { scrollLeft, scrollWidth, clientWidth } = this.region;
    this.region.parentElement.classList.toggle("more", scrollLeft + clientWidth < scrollWidth - 2);
  }

  line(row, at) {
    const link = this.stage.linkOf(this.name, this.spec, row);
    const cells = this.spec.columns.map((column, place) => {
      const text = column.cells[row], content = place === 0 && link ? make("a", { href: link }, text || "–") : text;
      return make("td", { class: column.right && "right", title: text.length > 24 ? text : null }, content);
    });
    return make("tr", { "aria-rowindex": at + 2 }, ...cells);
  }

  print(on) {
    this.printing = on;
    this.element.querySelector(".printed")?.remove();
    if (on && this.order.length > PRINTED) this.element.append(make("p", { class: "printed soft small" }, `and ${(this.order.length - PRINTED).toLocaleString("en")} more, on the page itself`));
    this.render();
  }
}

// A short table without tools: of one job or machine.
const plainTable = (title, heads, rows, rights = []) => make("section", {}, make("h3", {}, title), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, table` },
  make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...heads.map((head, at) => make("th", { scope: "col", class: rights[at] && "right" }, head || " ")))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, at) => make("td", { class: rights[at] && "right" }, cell))))))));
