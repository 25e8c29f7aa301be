// Elements, times and figures as the page writes them.

// An element with attributes and children; names from the archive only ever become text.
const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

const swatch = (colour) => {
  const mark = make("i", { class: "swatch" });
  mark.style.background = `var(--c${colour})`;
  return mark;
};

// Times in the zone that was asked for: [from when on, offset in seconds, name].
let zones = [[0, 0, "UTC"]];
const zoneAt = (time) => zones.findLast((zone) => zone[0] <= time) ?? zones[0];
const local = (time) => new Date((time + zoneAt(time)[1]) * 1000).toISOString();
const stamp = (time) => local(time).slice(0, 19).replace("T", " ");
const stampZone = (time) => `${stamp(time)} ${zoneAt(time)[2]}`;
const inLink = (time) => new Date(time * 1000).toISOString().replace(".000Z", "Z");

const digits = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 9.95 ? Math.round(value).toLocaleString("en") : value.toFixed(size < 0.0995 ? 2 : 1);
};
const bytes = (value) => {
  let unit = 0;
  while (Math.abs(value) >= 1023.95 && unit < 4) { value /= 1024; unit += 1; }
  return `${digits(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
};
const writers = {
  cores: digits,
  bytes,
  rate: (value) => `${bytes(value)}/s`,
  percent: (value) => `${Math.round(value)} %`,
  share: (value) => `${Math.round(value * 100)} %`,
  watts: (value) => `${digits(value)} W`,
};
