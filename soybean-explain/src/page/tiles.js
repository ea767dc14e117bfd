// Each GPU's tile of the chosen tensor: its parts of two dims.

/** Returns a rank's index ranges of a dim, and their number. */
function held(tensor, dim, rank) {
  const axes = axesOf(tensor, dim);
  if (!axes.length) return { count: 1, runs: [[0, tensor.shape[dim]]] };
  const mask = axes.reduce((mask, axis) => mask | (1 << axis), 0);
  const [count, runs] = data.ranks.splits[`${tensor.shape[dim]}:${mask}`][rank];
  return { count, runs };
}

/** Returns index ranges as text: `0-63, 128-191`. */
function stretches({ count, runs }) {
  const shown = runs.slice(0, 2).map(([first, length]) => (length === 1 ? `${first}` : `${first}–${first + length - 1}`));
  return shown.join(", ") + (count > 2 ? `, … (${count})` : "");
}

/**
 * Returns index ranges to draw. If there are more than the page has, they are too fine to show and
 * become an even shade.
 */
function evened({ count, runs, extent, share }) {
  return count === runs.length ? { runs, extent, shade: 1 } : { runs: [[0, extent]], extent, shade: share };
}

/** Draws a rank's rows and columns. */
function paint(target, tensor, rows, columns, rank) {
  const side = (target.width = target.height = 2 * (target.clientWidth || 104));
  const brush = target.getContext("2d");
  brush.fillStyle = getComputedStyle(target).color;
  const whole = { count: 1, runs: [[0, 1]] };
  const part = (dim) => (dim === null ? { ...whole, extent: 1 } : { ...held(tensor, dim, rank), extent: tensor.shape[dim], share: localShape(tensor)[dim] / tensor.shape[dim] });
  const [down, across] = [part(rows), part(columns)].map(evened);
  brush.globalAlpha = down.shade * across.shade;
  for (const [top, height] of down.runs) {
    for (const [left, width] of across.runs) {
      const [x, y] = [(left * side) / across.extent, (top * side) / down.extent];
      brush.fillRect(x, y, Math.max((width * side) / across.extent, 1), Math.max((height * side) / down.extent, 1));
    }
  }
}

/** Returns the dims to draw first: those that are split, then the last ones. */
function firstDims(tensor) {
  const dims = tensor.shape.map((_, dim) => dim);
  const split = dims.filter((dim) => axesOf(tensor, dim).length);
  const others = dims.filter((dim) => !split.includes(dim)).reverse();
  const pair = [...split, ...others].slice(0, 2).sort((a, b) => a - b);
  return pair.length === 2 ? pair : [null, pair[0] ?? null];
}

function chooser(label, tensor, now, change) {
  const options = tensor.shape.map((extent, dim) => {
    const option = element("option", { value: dim }, `dim ${dim} (${extent})`);
    option.selected = dim === now;
    return option;
  });
  const select = element("select", {}, ...options);
  select.addEventListener("change", () => change(Number(select.value)));
  return element("label", {}, `${label} `, select, " ");
}

/** Returns the number of GPUs in a row: as many of the fastest axes as there is space for. */
function meshColumns() {
  let columns = 1;
  for (const size of [...plan.axes].reverse()) {
    if (columns * size > 4) break;
    columns *= size;
  }
  return columns === 1 ? 4 : columns;
}

/** Draws all ranks. `dims` are those of rows and columns. */
function showTiles(tensor, dims = firstDims(tensor)) {
  const [rows, columns] = dims;
  const mesh = plan.axes.length ? plan.axes.join(" × ") : "1";
  const note = element("span", {}, `Mesh ${mesh}; shaded is what a GPU holds of `);
  byId("axes").replaceChildren(note);
  if (tensor.shape.length > 1) {
    byId("axes").append(
      chooser("rows:", tensor, rows, (dim) => showTiles(tensor, [dim, columns])),
      chooser("columns:", tensor, columns, (dim) => showTiles(tensor, [rows, dim])),
    );
  } else {
    byId("axes").append(tensor.shape.length ? "its one dim." : "a single number.");
  }
  const { coordinates } = data.ranks;
  const figures = coordinates.map((at, rank) => {
    const drawing = element("canvas", { style: `color: ${tileColor(tensor)}`, "aria-hidden": "true" });
    const lines = tensor.shape.map((_, dim) => [dim, held(tensor, dim, rank)]).filter(([dim]) => axesOf(tensor, dim).length);
    const words = lines.map(([dim, part]) => `dim ${dim}: ${stretches(part)}`);
    const caption = element("figcaption", {}, element("b", {}, `GPU ${rank}`), at.length ? ` (${at})` : "");
    const whole = tensor.tiling.includes("red") ? "a part of the sum" : "all of it";
    for (const line of words.length ? words : [whole]) caption.append(element("br"), line);
    return element("figure", { "data-rank": rank }, drawing, caption);
  });
  byId("tiles").style.setProperty("--columns", meshColumns());
  byId("tiles").replaceChildren(...figures);
  if (plan.gpus > coordinates.length) {
    byId("tiles").append(element("p", {}, `and ${plan.gpus - coordinates.length} more GPUs`));
  }
  figures.forEach((figure, rank) => paint(figure.querySelector("canvas"), tensor, rows, columns, rank));
}

/** Returns a color with enough contrast for a shape on the page's background. */
const tileColor = (tensor) => (tensor.tiling.some((it) => it !== "r") ? "var(--choice)" : "var(--quiet)");
