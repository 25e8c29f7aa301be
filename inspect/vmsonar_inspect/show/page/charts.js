// Charts on canvas over one time axis. Where a pixel covers several steps, the mean and the highest of them are drawn.

const HEAD = 14; // room above the plot for the mark of the capacity
const FOOT = 22; // room below it for the times
const LABEL_GAP = 14;
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 432000, 604800, 1209600, 2592000, 7776000, 31536000];

const niceTop = (value, unit) => {
  const binary = unit === "bytes" || unit === "rate";
  if (!(value > 0)) return binary ? 1024 : 1;
  const base = binary ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(value / base));
  const step = [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((each) => each * power * base >= value * 0.9999) ?? 10;
  return step * power * base;
};

let palette = null;
const readPalette = () => {
  const style = getComputedStyle(document.documentElement);
  const names = ["text", "soft", "grid", "hole", "cap", "bad", "card", ...Array.from({ length: 20 }, (_, at) => `c${at}`)];
  palette = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
};

const numbers = (values) => Float64Array.from(values, (value) => value ?? NaN);

class Chart {
  // `stage` holds what all charts share: the time shown, holes, marks, and what zooming does.
  constructor(spec, stage) {
    this.spec = spec;
    this.stage = stage;
    this.hidden = new Set();
    this.series = spec.series.map((each) => ({ ...each, mean: numbers(each.mean) }));
    this.series.forEach((each) => { each.high = each.high ? numbers(each.high) : each.mean; });
    this.peak = this.higher(spec.peak && numbers(spec.peak));
    this.count = Math.max(0, ...this.series.map((each) => each.mean.length));
    this.write = writers[spec.unit];
    this.cursor = null;
    this.build();
    this.listen();
  }

  // The highest moments of a stack, where they are above what its means add up to.
  higher(peak) {
    const total = (place) => this.series.reduce((sum, each) => sum + (each.mean[place] || 0), 0);
    return peak?.some((value, place) => value > total(place) * 1.001) ? peak : null;
  }

  build() {
    this.canvas = make("canvas", { tabindex: "0", role: "slider", "aria-label": `${this.spec.title} over time`, "aria-valuemin": 0, "aria-valuemax": Math.max(1, this.count - 1), "aria-valuenow": 0, "aria-valuetext": "arrow keys move through time" });
    this.line = make("div", { class: "cursor", hidden: true });
    this.band = make("div", { class: "drag", hidden: true });
    this.tip = make("div", { class: "tip", hidden: true });
    this.figure = make("figure", { class: this.spec.wide && "wide" }, make("figcaption", {}, make("h4", {}, this.spec.title)), make("div", { class: "plot" }, this.canvas, this.line, this.band, this.tip));
    if (this.series.length > 1) this.figure.append(this.legend());
  }

  legend() {
    const box = make("div", { class: "legend", role: "group", "aria-label": `Lines of ${this.spec.title}` });
    this.series.forEach((series, index) => {
      const button = make("button", { type: "button", "aria-pressed": "true", title: series.name }, swatch(series.colour), make("span", {}, series.name));
      button.addEventListener("click", () => {
        const shown = this.hidden.delete(index) || !this.hidden.add(index);
        button.setAttribute("aria-pressed", String(shown));
        this.draw();
      });
      box.append(button);
    });
    return box;
  }

  listen() {
    const canvas = this.canvas, stage = this.stage;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.drag = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag !== undefined) this.select(this.drag, event.offsetX);
      stage.point(this.timeAt(event.offsetX), this);
    });
    const stop = (event) => {
      const begun = this.drag;
      this.drag = undefined;
      this.band.hidden = true;
      if (event.type === "pointerup" && begun !== undefined && Math.abs(event.offsetX - begun) > 8) {
        const ends = [this.timeAt(begun), this.timeAt(event.offsetX)];
        stage.zoom(Math.min(...ends), Math.max(...ends));
      }
    };
    canvas.addEventListener("pointerup", stop);
    canvas.addEventListener("pointercancel", stop);
    canvas.addEventListener("pointerleave", () => stage.point(null, this));
    canvas.addEventListener("blur", () => stage.point(null, this));
    canvas.addEventListener("dblclick", () => stage.zoom(stage.whole.from, stage.whole.to));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      stage.scale(event.deltaY > 0 ? 1.4 : 1 / 1.4, this.timeAt(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  // Arrows move the cursor, which is read out; with Shift they move the time shown.
  key(event) {
    const { from, to } = this.stage.view, stage = this.stage;
    const stride = Math.max(this.spec.step, (to - from) / 100);
    const at = this.cursor ?? from - stride / 2;
    const move = (time) => stage.point(Math.min(to - stride / 2, Math.max(from + stride / 2, time)), this);
    const ways = {
      ArrowLeft: () => (event.shiftKey ? stage.shift(-0.2) : move(at - stride)),
      ArrowRight: () => (event.shiftKey ? stage.shift(0.2) : move(at + stride)),
      PageUp: () => move(at - 10 * stride), PageDown: () => move(at + 10 * stride),
      Home: () => move(from), End: () => move(to), Escape: () => stage.point(null, this),
      "+": () => stage.scale(1 / 1.5, this.cursor ?? undefined), "-": () => stage.scale(1.5, this.cursor ?? undefined),
      "0": () => stage.zoom(stage.whole.from, stage.whole.to),
    };
    const way = ways[event.key === "=" ? "+" : event.key];
    if (way) { event.preventDefault(); way(); }
  }

  timeAt(x) {
    const share = (x - this.left) / Math.max(1, this.width - this.left);
    return this.stage.view.from + Math.min(1, Math.max(0, share)) * (this.stage.view.to - this.stage.view.from);
  }

  x(time) { return this.left + (time - this.from) * this.perSecond; }

  y(value) { return this.bottom - Math.min(1, Math.max(0, value / this.top)) * (this.bottom - HEAD); }

  select(from, to) {
    const [begin, end] = [Math.max(this.left, Math.min(from, to)), Math.min(this.width, Math.max(from, to))];
    this.band.hidden = false;
    this.band.style.width = `${Math.max(0, end - begin)}px`;
    this.band.style.transform = `translateX(${begin}px)`;
  }

  // One column per pixel, or per step where steps are wider: of each series [mean, highest], of a stack its highest moment.
  columns() {
    const { first, step } = this.spec, view = this.stage.view;
    const begin = Math.max(0, Math.floor((view.from - first) / step)), end = Math.min(this.count, Math.ceil((view.to - first) / step));
    const per = Math.max(1, Math.ceil((end - begin) / Math.max(1, this.width - 40)));
    const count = Math.max(0, Math.ceil((end - begin) / per));
    const shown = this.series.filter((_, index) => !this.hidden.has(index));
    const limits = (at) => [begin + at * per, Math.min(end, begin + (at + 1) * per)];
    const fill = this.spec.stacked ? stackColumns : lineColumns;
    const drawn = fill(shown, count, limits, begin, per);
    const peak = this.peak && !this.hidden.size ? lineColumns([{ mean: this.peak, high: this.peak }], count, limits, begin, per)[0].high : null;
    return { begin, per, count, shown, drawn, peak };
  }

  draw() {
    const canvas = this.canvas, ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    this.bottom = this.height - FOOT;
    const [wide, high] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "11px system-ui, sans-serif";
    const columns = this.columns();
    let most = 0, points = 0;
    for (const each of [...columns.drawn.map((one) => one.high), columns.peak ?? []]) {
      for (const value of each) if (value === value) { most = Math.max(most, value); points += 1; }
    }
    const fixed = Math.max(this.spec.top ?? 0, this.spec.capacity ?? 0);
    this.top = fixed && most <= fixed * 1.0001 ? fixed : niceTop(most, this.spec.unit);
    if (!this.spec.top && fixed > most * 4 && most > 0) this.top = niceTop(most * 1.2, this.spec.unit); // far from its capacity
    const labels = [0, 0.5, 1].map((share) => this.write(this.top * share));
    this.left = Math.ceil(Math.max(...labels.map((label) => pen.measureText(label).width))) + 8;
    this.from = this.stage.view.from;
    this.perSecond = (this.width - this.left) / (this.stage.view.to - this.from);
    this.holes(pen);
    this.axes(pen, labels);
    columns.drawn.forEach((each, index) => this.area(pen, columns.shown[index], each, columns));
    if (columns.peak) this.path(pen, columns.peak, columns, palette.text, 1, 0.55);
    this.capacity(pen);
    this.marks(pen);
    this.figure.dataset.points = points;
    this.place(this.cursor);
  }

  axes(pen, labels) {
    pen.fillStyle = palette.soft;
    pen.strokeStyle = palette.grid;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    labels.forEach((label, at) => {
      const y = Math.round(this.y(this.top * at / 2)) + 0.5;
      pen.beginPath(); pen.moveTo(this.left, y); pen.lineTo(this.width, y); pen.stroke();
      pen.fillText(label, this.left - 6, y);
    });
    const { step, texts } = this.ticks(pen);
    pen.textBaseline = "alphabetic";
    pen.textAlign = "center";
    for (const [time, text] of texts) {
      const x = Math.round(this.x(time)) + 0.5;
      pen.beginPath(); pen.moveTo(x, HEAD); pen.lineTo(x, this.bottom); pen.stroke();
      pen.fillText(text, x, this.bottom + 15);
    }
    this.figure.dataset.labels = texts.length;
    this.figure.dataset.tick = step;
  }

  // The shortest ticks whose labels do not touch, written like the times in the text.
  ticks(pen) {
    const { from, to } = this.stage.view;
    let found = { step: 0, texts: [] };
    for (const step of TICKS) {
      const texts = [], offset = zoneAt(from)[1];
      if ((to - from) / step > (this.width - this.left) / 20) continue;
      let before = "", last = -Infinity, fits = true;
      for (let time = Math.ceil((from + offset) / step) * step - offset; time <= to; time += step) {
        const [day, clock] = [local(time).slice(5, 10), local(time).slice(11, step < 60 ? 19 : 16)];
        const text = step >= 86400 || (day !== before && before) || (!before && to - from > 86400) ? day : clock;
        const half = pen.measureText(text).width / 2, x = this.x(time);
        before = day;
        if (x - half < this.left - 6 || x + half > this.width) continue;
        if (x - half < last + LABEL_GAP) { fits = false; break; }
        last = x + half;
        texts.push([time, text]);
      }
      if (fits) return { step, texts };
      found = { step, texts };
    }
    return found;
  }

  holes(pen) {
    pen.fillStyle = palette.hole;
    for (const [from, to] of this.stage.holes) {
      const begin = Math.max(this.left, this.x(from)), end = Math.min(this.width, this.x(to));
      if (end > begin) pen.fillRect(begin, HEAD, Math.max(1, end - begin), this.bottom - HEAD);
    }
  }

  // A line along a course of steps, broken off where nothing is known.
  path(pen, values, { begin, per }, colour, width, alpha = 1) {
    const wide = per * this.spec.step * this.perSecond, zero = this.x(this.spec.first + begin * this.spec.step);
    let open = false;
    pen.beginPath();
    for (let at = 0; at < values.length; at += 1) {
      if (values[at] !== values[at]) { open = false; continue; }
      const y = this.y(values[at]), x = Math.max(this.left, zero + at * wide);
      if (open) pen.lineTo(x, y); else pen.moveTo(x, y);
      if (wide >= 2) pen.lineTo(Math.max(this.left, zero + (at + 1) * wide), y); // a step of a pixel needs no stairs
      open = true;
    }
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.lineWidth = 1;
  }

  // Fills from `low` (the axis without it) to `high`, a rectangle for each column: far quicker than one long outline.
  fill(pen, low, high, { begin, per }, colour, alpha) {
    const wide = per * this.spec.step * this.perSecond, zero = this.x(this.spec.first + begin * this.spec.step);
    pen.globalAlpha = alpha;
    pen.fillStyle = colour;
    for (let at = 0; at < high.length; at += 1) {
      if (high[at] !== high[at]) continue;
      const left = Math.max(this.left, Math.round(zero + at * wide)), right = Math.round(zero + (at + 1) * wide);
      const top = this.y(high[at]), bottom = low ? this.y(low[at]) : this.bottom;
      if (right > left && bottom > top) pen.fillRect(left, top, right - left, bottom - top);
    }
    pen.globalAlpha = 1;
  }

  area(pen, series, drawn, columns) {
    const tone = palette[`c${series.colour}`], { stacked } = this.spec;
    if (stacked) {
      this.fill(pen, drawn.low, drawn.high, columns, tone, 0.85);
      return;
    }
    if (!series.line) this.fill(pen, null, drawn.mean, columns, tone, 0.28);
    if (drawn.high !== drawn.mean) this.fill(pen, drawn.mean, drawn.high, columns, tone, 0.5);
    this.path(pen, drawn.mean, columns, tone, 1.4);
  }

  capacity(pen) {
    if (!this.spec.capacity || this.spec.capacity > this.top * 1.0001) return;
    const y = Math.round(this.y(this.spec.capacity)) + 0.5;
    pen.strokeStyle = palette.cap;
    pen.setLineDash([5, 4]);
    pen.beginPath(); pen.moveTo(this.left, y); pen.lineTo(this.width, y); pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = palette.soft;
    pen.textAlign = "right";
    pen.textBaseline = "alphabetic";
    pen.fillText(`Capacity ${this.write(this.spec.capacity)}`, this.width, y - 3);
  }

  // What happened: a tick at the foot, and a line through the chart where something went wrong.
  marks(pen) {
    const { from, to } = this.stage.view, seen = new Set();
    let marked = 0;
    for (const [time, , wrong] of this.stage.marks()) {
      if (time < from || time > to) continue;
      const x = Math.round(this.x(time)) + 0.5, key = wrong ? x : -x;
      marked += 1;
      if (seen.has(key)) continue;
      seen.add(key);
      pen.strokeStyle = wrong ? palette.bad : palette.soft;
      pen.lineWidth = wrong ? 1 : 2;
      pen.beginPath(); pen.moveTo(x, wrong ? HEAD : this.bottom); pen.lineTo(x, wrong ? this.bottom : this.bottom + 5); pen.stroke();
    }
    pen.lineWidth = 1;
    this.figure.dataset.marks = marked;
  }

  // The cursor at a time, or none; only the chart that is pointed at tells the figures.
  point(time, own) {
    this.cursor = time;
    this.place(time);
    this.tip.hidden = !own || time === null;
    if (this.tip.hidden) return;
    const place = Math.floor((time - this.spec.first) / this.spec.step);
    this.tell(Math.min(this.count - 1, Math.max(0, place)), time);
  }

  place(time) {
    this.line.hidden = time === null || !(this.width > 0);
    if (!this.line.hidden) this.line.style.transform = `translateX(${this.x(time)}px)`;
  }

  tell(place, time) {
    const when = stampZone(this.spec.first + place * this.spec.step);
    const rows = [make("div", {}, make("b", {}, when))], words = [];
    const say = (mark, name, value) => { rows.push(make("div", {}, mark, make("span", {}, name), make("b", {}, value))); words.push(`${name} ${value}`); };
    for (const series of this.series.filter((_, index) => !this.hidden.has(index)).reverse()) {
      const mean = series.mean[place], high = series.high[place];
      if (this.spec.stacked && !mean) continue;
      const more = high > mean * 1.005 && !this.spec.stacked ? `, highest ${this.write(high)}` : "";
      say(swatch(series.colour), series.name, mean === mean ? this.write(mean) + more : "not seen");
    }
    if (this.peak && this.peak[place] === this.peak[place]) say(null, "highest, all together", this.write(this.peak[place]));
    if (this.spec.capacity) say(null, "Capacity", this.write(this.spec.capacity));
    const near = (this.stage.view.to - this.stage.view.from) / Math.max(1, this.width) * 4;
    for (const [at, what, wrong] of this.stage.marks().filter(([at]) => Math.abs(at - time) <= Math.max(near, this.spec.step / 2)).slice(0, 5)) {
      const row = make("div", { class: wrong && "bad" }, make("span", {}, what), make("b", {}, stamp(at).slice(11)));
      rows.push(row);
      words.push(`${what} at ${stamp(at).slice(11)}`);
    }
    this.tip.replaceChildren(...rows);
    this.canvas.setAttribute("aria-valuenow", place);
    this.canvas.setAttribute("aria-valuetext", `${when}: ${words.join("; ")}`);
    const x = this.x(time), wide = this.tip.offsetWidth;
    this.tip.style.transform = `translateX(${Math.max(0, Math.min(this.width - wide, x > this.width / 2 ? x - wide - 12 : x + 12))}px)`;
  }
}

const lineColumns = (shown, count, limits, begin, per) => shown.map((series) => {
  if (per === 1 && series.high === series.mean) { const mean = series.mean.subarray(begin, begin + count); return { mean, high: mean }; }
  const mean = new Float64Array(count).fill(NaN), high = new Float64Array(count).fill(NaN);
  for (let at = 0; at < count; at += 1) {
    const [from, to] = limits(at);
    let sum = 0, known = 0, most = -Infinity;
    for (let place = from; place < to; place += 1) {
      const value = series.mean[place], top = series.high[place];
      if (value === value) { sum += value; known += 1; }
      if (top > most) most = top;
    }
    if (known) mean[at] = sum / known;
    if (most > -Infinity) high[at] = most;
  }
  return { mean, high };
});

const stackColumns = (shown, count, limits) => {
  const drawn = shown.map(() => ({ low: new Float64Array(count), high: new Float64Array(count).fill(NaN) }));
  for (let at = 0; at < count; at += 1) {
    const [from, to] = limits(at);
    let best = -1, most = -1;
    for (let place = from; place < to; place += 1) {
      let total = 0, known = false;
      for (const series of shown) {
        const value = series.mean[place];
        if (value === value) { total += value; known = true; }
      }
      if (known && total > most) { most = total; best = place; }
    }
    let base = 0;
    if (best >= 0) shown.forEach((series, index) => {
      const value = series.mean[best];
      drawn[index].low[at] = base;
      base += value === value ? value : 0;
      drawn[index].high[at] = base;
    });
  }
  return drawn;
};
