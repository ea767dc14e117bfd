// Shared by all parts: the plan, elements, and numbers as text.

// This comes first, before anything can fail.
addEventListener("error", (event) => {
  document.getElementById("errors").hidden = false;
  document.getElementById("errors").append(`${event.message} at ${event.filename}:${event.lineno}\n`);
});

const data = JSON.parse(document.getElementById("data").textContent);
const plan = data.plan;
const tensors = new Map(plan.tensors.map((it) => [it.id, it]));
const operators = new Map(plan.ops.map((it) => [it.output, it]));
const readers = new Map();
for (const operator of plan.ops) {
  for (const input of new Set(operator.inputs)) {
    readers.set(input, [...(readers.get(input) ?? []), operator]);
  }
}

const byId = (id) => document.getElementById(id);

/** Makes an element with attributes and children. Texts are never parsed as HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Makes an SVG element. */
function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Returns a size such as `402.7 MB`, with 1 MB = 10^6 bytes. */
function bytes(amount) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (amount >= 1000 && unit + 1 < units.length) {
    amount /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${amount} B` : `${amount.toFixed(1)} ${units[unit]}`;
}

/** Returns a time such as `12.3 ms`. */
function seconds(amount) {
  const [unit, size] = [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]].find((it) => amount >= it[1]) ?? ["s", 1];
  return `${(amount / size).toFixed(1)} ${unit}`;
}

const timesNamed = new Map();
for (const { name } of plan.tensors) timesNamed.set(name, (timesNamed.get(name) ?? 0) + 1);

/** Returns a tensor's fragment of the URL: its name, or its number if several have the name. */
const token = ({ id, name }) => (timesNamed.get(name) > 1 ? `v${id}` : encodeURIComponent(name));

const tilingText = (tiling) => `[${tiling.join(" ")}]`;

/**
 * Returns the color of a placement: `r`, `red`, or `P` and a dim. Further dims have the last
 * color.
 */
function color(placement) {
  const dim = /^P(\d+)$/.exec(placement);
  return dim ? `var(--p${Math.min(Number(dim[1]), 5)})` : `var(--${placement})`;
}

/** Makes the stripes of a tiling, one for each axis. */
function flag(tiling) {
  const stripes = (tiling.length ? tiling : ["r"]).map((it) => element("i", { style: `background: ${color(it)}` }));
  return element("span", { class: "flag", "aria-hidden": "true" }, ...stripes);
}

const N_BYTES = { f32: 4, bf16: 2, i32: 4 };

const product = (numbers) => numbers.reduce((all, it) => all * it, 1);

/** Returns the axes that split a dim. */
const axesOf = (tensor, dim) => tensor.tiling.flatMap((it, axis) => (it === `P${dim}` ? [axis] : []));

/** Returns the shape of one GPU's tile. */
const localShape = (tensor) =>
  tensor.shape.map((extent, dim) => extent / product(axesOf(tensor, dim).map((axis) => plan.axes[axis])));
