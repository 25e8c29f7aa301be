"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const whole = { from: data.first, to: data.first + data.step * data.count };
  const view = { ...whole };
  const charts = [];
  const inZone = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: data.zone, hourCycle: "h23", ...options });
  const full = inZone({ year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const clock = inZone({ hour: "2-digit", minute: "2-digit" });
  const fine = inZone({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const day = inZone({ day: "numeric", month: "short" });

  const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 9.95 ? String(Math.round(value)) : value.toFixed(Math.abs(value) < 0.0995 ? 2 : 1));
  const bytes = (value) => {
    let unit = 0;
    while (Math.abs(value) >= 1023.95 && unit < 4) { value /= 1024; unit += 1; }
    return digits(value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
  };
  const writers = {
    cores: (value) => digits(value), bytes, rate: (value) => bytes(value) + "/s",
    percent: (value) => Math.round(value) + " %", watts: (value) => digits(value) + " W",
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const niceTop = (value, unit) => {
    if (!(value > 0)) return unit === "bytes" || unit === "rate" ? 1024 : 1;
    const base = unit === "bytes" || unit === "rate" ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
    const scaled = value / base;
    const power = 10 ** Math.floor(Math.log10(scaled));
    const step = [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((each) => each * power >= scaled * 1.0001) ?? 10;
    return step * power * base;
  };
  const tickStep = (seconds, room) => {
    const steps = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
    return steps.find((step) => seconds / step <= room) ?? 1209600;
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.spec = data.charts[figure.dataset.chart];
      this.canvas = figure.querySelector("canvas");
      this.hidden = new Set();
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      figure.append(this.tip);
      this.legend();
      this.listen();
      charts.push(this);
    }
    legend() {
      if (this.spec.series.length < 2) return;
      const box = document.createElement("div");
      box.className = "legend";
      this.spec.series.forEach((series, index) => {
        const button = document.createElement("button");
        const mark = document.createElement("i");
        const name = document.createElement("span");
        mark.dataset.colour = series.colour;
        name.textContent = series.name;
        button.title = series.name;
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.append(mark, name);
        button.addEventListener("click", () => {
          const shown = this.hidden.delete(index) || !this.hidden.add(index);
          button.setAttribute("aria-pressed", String(shown));
          this.draw();
        });
        box.append(button);
      });
      this.figure.append(box);
      this.box = box;
    }
    listen() {
      const canvas = this.canvas;
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.drag = { from: this.timeAt(event), x: event.offsetX };
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (this.drag) this.drag.to = this.timeAt(event);
        charts.forEach((chart) => chart.point(this.timeAt(event), chart === this));
      });
      canvas.addEventListener("pointerup", (event) => {
        const drag = this.drag;
        this.drag = null;
        if (drag && Math.abs(event.offsetX - drag.x) > 8) zoom(Math.min(drag.from, this.timeAt(event)), Math.max(drag.from, this.timeAt(event)));
        else this.draw();
      });
      canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
      canvas.addEventListener("pointerleave", () => charts.forEach((chart) => chart.point(null, false)));
      canvas.addEventListener("dblclick", () => zoom(whole.from, whole.to));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        scale(event.deltaY > 0 ? 1.4 : 1 / 1.4, this.timeAt(event));
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        const way = { "+": () => scale(1 / 1.5), "=": () => scale(1 / 1.5), "-": () => scale(1.5), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), "0": () => zoom(whole.from, whole.to) }[event.key];
        if (way) { event.preventDefault(); way(); }
      });
    }
    timeAt(event) {
      const share = (event.offsetX - this.left) / Math.max(1, this.canvas.clientWidth - this.left - 4);
      return view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
    }
    // What is to be drawn: one value per column of pixels, or per step where these are wider.
    columns(width) {
      const begin = Math.max(0, Math.floor((view.from - data.first) / data.step));
      const end = Math.min(data.count, Math.ceil((view.to - data.first) / data.step));
      const per = Math.max(1, Math.ceil((end - begin) / Math.max(1, width)));
      const count = Math.max(0, Math.ceil((end - begin) / per));
      const shown = this.spec.series.map((series, index) => ({ ...series, index })).filter((series) => !this.hidden.has(series.index));
      const base = new Float64Array(count);
      for (const series of shown) {
        series.points = new Array(count);
        for (let at = 0; at < count; at += 1) {
          let sum = 0, known = 0;
          for (let place = begin + at * per; place < Math.min(end, begin + (at + 1) * per); place += 1) {
            const value = series.values[place];
            if (value !== null && value !== undefined) { sum += value; known += 1; }
          }
          const low = this.spec.stacked ? base[at] : 0;
          series.points[at] = known ? [low, low + sum / known] : null;
          if (known && this.spec.stacked) base[at] += sum / known;
        }
      }
      return { begin, per, count, shown };
    }
    draw() {
      const canvas = this.canvas, ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth, height = canvas.clientHeight;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = "11px system-ui, sans-serif";
      const write = writers[this.spec.unit];
      const columns = this.columns(width);
      let most = this.spec.top ?? 0, points = 0;
      for (const series of columns.shown) for (const point of series.points) if (point) { most = Math.max(most, point[1]); points += 1; }
      this.figure.dataset.points = String(points);
      const top = this.spec.top && most <= this.spec.top ? this.spec.top : niceTop(most, this.spec.unit);
      this.left = Math.ceil(Math.max(...[0, 0.5, 1].map((share) => pen.measureText(write(top * share)).width))) + 10;
      const right = width - 4, bottom = height - 20, head = 8;
      const x = (time) => this.left + (time - view.from) / (view.to - view.from) * (right - this.left);
      const y = (value) => bottom - value / top * (bottom - head);
      this.axes(pen, { x, y, top, write, right, bottom, head });
      this.holes(pen, { x, bottom, head, right });
      pen.save();
      pen.beginPath();
      pen.rect(this.left, 0, right - this.left, bottom + 1);
      pen.clip();
      for (const series of columns.shown) this.series(pen, series, columns, x, y);
      this.marks(pen, { x, y, bottom, head });
      pen.restore();
      if (this.box) this.box.querySelectorAll("i").forEach((mark) => { mark.style.background = colour("--c" + mark.dataset.colour); });
    }
    axes(pen, { x, y, top, write, right, bottom, head }) {
      pen.fillStyle = colour("--soft");
      pen.strokeStyle = colour("--grid");
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      for (const share of [0, 0.5, 1]) {
        const at = Math.round(y(top * share)) + 0.5;
        pen.beginPath(); pen.moveTo(this.left, at); pen.lineTo(right, at); pen.stroke();
        pen.fillText(write(top * share), this.left - 6, Math.max(at, head));
      }
      pen.textBaseline = "alphabetic";
      const span = view.to - view.from, step = tickStep(span, Math.max(2, (right - this.left) / 90));
      const label = step >= 86400 ? day : step < 60 ? fine : clock;
      let last = -1e9, before = "";
      for (let time = Math.ceil(view.from / step) * step; time < view.to; time += step) {
        const moment = new Date(time * 1000);
        const date = day.format(moment);
        const text = span > 86400 && label !== day && date !== before ? date : label.format(moment);
        const half = pen.measureText(text).width / 2, at = x(time);
        if (at - half < last + 8 || at + half > right || at - half < 0) continue;
        before = date;
        last = at + half;
        pen.beginPath(); pen.moveTo(Math.round(at) + 0.5, head); pen.lineTo(Math.round(at) + 0.5, bottom); pen.stroke();
        pen.textAlign = "center";
        pen.fillText(text, at, bottom + 15);
      }
    }
    holes(pen, { x, bottom, head, right }) {
      pen.fillStyle = colour("--hole");
      for (const [from, to] of data.holes) {
        const begin = Math.max(this.left, x(from)), end = Math.min(right, x(to));
        if (end > begin) pen.fillRect(begin, head, Math.max(1, end - begin), bottom - head);
      }
    }
    series(pen, series, { begin, per }, x, y) {
      const tone = colour("--c" + series.colour);
      const run = [];
      const flush = () => {
        if (!run.length) return;
        pen.beginPath();
        run.forEach(([from, to, , high], at) => { if (at === 0) pen.moveTo(x(from), y(high)); else pen.lineTo(x(from), y(high)); pen.lineTo(x(to), y(high)); });
        if (series.line !== true) {
          const edge = new Path2D();
          run.forEach(([from, to, , high], at) => { if (at === 0) edge.moveTo(x(from), y(high)); else edge.lineTo(x(from), y(high)); edge.lineTo(x(to), y(high)); });
          for (const [from, to, low] of [...run].reverse()) { pen.lineTo(x(to), y(low)); pen.lineTo(x(from), y(low)); }
          pen.globalAlpha = this.spec.stacked ? 0.8 : 0.28;
          pen.fillStyle = tone;
          pen.fill();
          pen.globalAlpha = 1;
          pen.strokeStyle = tone;
          pen.lineWidth = this.spec.stacked ? 0.6 : 1.3;
          pen.stroke(edge);
        } else {
          pen.strokeStyle = tone;
          pen.lineWidth = 1.3;
          pen.stroke();
        }
        pen.lineWidth = 1;
        run.length = 0;
      };
      series.points.forEach((point, at) => {
        if (!point) { flush(); return; }
        const from = data.first + (begin + at * per) * data.step;
        run.push([from, from + per * data.step, point[0], point[1]]);
      });
      flush();
    }
    marks(pen, { x, y, bottom, head }) {
      if (this.spec.capacity) {
        pen.strokeStyle = colour("--cap");
        pen.setLineDash([5, 4]);
        pen.beginPath(); pen.moveTo(x(view.from), y(this.spec.capacity)); pen.lineTo(x(view.to), y(this.spec.capacity)); pen.stroke();
        pen.setLineDash([]);
      }
      pen.strokeStyle = colour("--bad");
      for (const [time] of data.marks) {
        const at = Math.round(x(time)) + 0.5;
        if (time >= view.from && time <= view.to) { pen.beginPath(); pen.moveTo(at, head); pen.lineTo(at, bottom); pen.stroke(); }
      }
      if (this.drag && this.drag.to !== undefined) {
        pen.fillStyle = colour("--accent");
        pen.globalAlpha = 0.2;
        pen.fillRect(x(this.drag.from), head, x(this.drag.to) - x(this.drag.from), bottom - head);
        pen.globalAlpha = 1;
      }
      if (this.cursor) {
        pen.strokeStyle = colour("--soft");
        pen.beginPath(); pen.moveTo(x(this.cursor), head); pen.lineTo(x(this.cursor), bottom); pen.stroke();
      }
    }
    point(time, own) {
      this.cursor = time;
      this.draw();
      this.tip.hidden = !own || time === null;
      if (this.tip.hidden) return;
      const place = Math.min(data.count - 1, Math.max(0, Math.floor((time - data.first) / data.step)));
      const rows = this.spec.series.filter((series, index) => !this.hidden.has(index)).map((series) => [series.name, series.values[place]]);
      this.tip.replaceChildren(line(full.format(new Date((data.first + place * data.step) * 1000)), ""));
      for (const [name, value] of rows.reverse()) {
        if (this.spec.stacked && !value) continue;
        this.tip.append(line(name, value === null || value === undefined ? "not seen" : writers[this.spec.unit](value)));
      }
      // What went wrong within a few pixels of the pointer.
      const near = (view.to - view.from) / Math.max(1, this.canvas.clientWidth) * 4;
      for (const [when, what] of data.marks) {
        if (Math.abs(when - time) <= near) this.tip.append(line(what, full.format(new Date(when * 1000)).slice(-8)));
      }
      const at = this.left + (time - view.from) / (view.to - view.from) * (this.canvas.clientWidth - this.left);
      const room = this.figure.clientWidth, wide = this.tip.offsetWidth;
      this.tip.style.left = Math.max(4, Math.min(room - wide - 4, at > room / 2 ? at - wide - 6 : at + 26)) + "px";
      this.tip.style.top = this.canvas.offsetTop + 10 + "px";
    }
  }
  const line = (name, value) => {
    const row = document.createElement("div"), left = document.createElement("span"), right = document.createElement("b");
    left.textContent = name;
    right.textContent = value;
    row.append(left, right);
    return row;
  };
  const zoom = (from, to) => {
    const least = data.step * 4, span = Math.min(whole.to - whole.from, Math.max(least, to - from));
    const begin = Math.min(Math.max(whole.from, (from + to - span) / 2), whole.to - span);
    view.from = begin;
    view.to = begin + span;
    const label = document.getElementById("range");
    const all = span >= whole.to - whole.from - 1e-6;
    label.textContent = all ? "all of it" : full.format(new Date(view.from * 1000)) + " to " + full.format(new Date(view.to * 1000));
    charts.forEach((chart) => chart.draw());
  };
  const scale = (factor, middle = (view.from + view.to) / 2) => zoom(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  const shift = (share) => zoom(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

  document.querySelectorAll("figure[data-chart]").forEach((figure) => new Chart(figure));
  const ways = { "zoom-in": () => scale(1 / 2), "zoom-out": () => scale(2), "zoom-left": () => shift(-0.5), "zoom-right": () => shift(0.5), "zoom-all": () => zoom(whole.from, whole.to) };
  for (const [name, way] of Object.entries(ways)) document.getElementById(name).addEventListener("click", way);
  window.addEventListener("resize", () => charts.forEach((chart) => chart.draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
  zoom(whole.from, whole.to);
  document.documentElement.dataset.ready = "true";
})();
