// The bytes beside those of the baselines, and the memory over the steps.

function showBars() {
  const { data: dataBytes, model, recursive, unpinned } = plan.baselines;
  const times = plan.times ?? {};
  const rows = [
    ["data parallelism", dataBytes, "", times.data],
    ["model parallelism", model, "", times.model],
    ["recursive search", recursive, "", times.recursive],
    ...(unpinned === undefined ? [] : [["this search without pins", unpinned, ""]]),
    [`this plan (${plan.strategy})`, plan.bytes_total, "ours", times.plan],
    // No bound is known if bytes are not the objective.
    ...(plan.search.lower_bound_bytes ? [["lower bound", plan.search.lower_bound_bytes, "bound"]] : []),
  ];
  const most = Math.max(...rows.map((it) => it[1]), 1);
  for (const [label, amount, kind, time] of rows) {
    const bar = element("i", { style: `width: ${(100 * amount) / most}%` });
    const ratio = plan.bytes_total && !kind ? ` · ${(amount / plan.bytes_total).toFixed(2)} ×` : "";
    byId("bars").append(
      element("span", {}, label),
      element("span", { class: `track ${kind}` }, bar),
      element("span", { class: "value" }, bytes(amount) + ratio + (time ? ` · ${seconds(time)}` : "")),
    );
  }
  const levels = (plan.levels ?? []).map((it) => `${bytes(it.bytes)} between ${it.name} in ${seconds(it.seconds)}`);
  if (levels.length) byId("levels").append(`On ${plan.cluster}: ${levels.join(", ")}.`);
}

const CHART = { width: 1200, height: 260, left: 64, right: 8, top: 12, bottom: 22 };

/** Returns a round number of bytes for about four lines of a grid. */
function tick(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => most / it <= 5);
}

/** Returns the outline of an area: its upper edge forward, its lower edge backward. */
function outline(lower, upper, x, y) {
  const corners = (tops) => tops.flatMap((top, at) => [[x(at), y(top)], [x(at + 1), y(top)]]);
  const points = [...corners(upper), ...corners(lower).reverse()];
  return points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
}

/** Returns the bytes of each kind at each step. */
function memoryBySteps() {
  const now = data.memory.kinds.map(() => 0);
  return data.program.steps.map((_, at) => now.map((_, kind) => (now[kind] += data.memory.changes[kind][at])));
}

const used = memoryBySteps();
const totals = used.map((it) => it.reduce((sum, amount) => sum + amount, 0));

/** Returns a step as text: `b3 = kernel (b1, b2)`. */
function stepText(at) {
  if (!data.program.steps[at]) return "";
  const [text, results, inputs] = data.program.steps[at];
  const list = (buffers) => buffers.map((it) => `b${it}`).join(", ");
  return `${list(results)}${data.program.texts[text]} (${list(inputs)})`;
}

/** Returns the fullest step of each `n` steps. */
function fullest(n) {
  const groups = [];
  for (let at = 0; at < used.length; at += n) {
    let best = at;
    for (let next = at; next < Math.min(at + n, used.length); next++) if (totals[next] > totals[best]) best = next;
    groups.push(used[best]);
  }
  return groups;
}

function showTimeline() {
  const { kinds, arena } = data.memory;
  const { width, height, left, right, top, bottom } = CHART;
  const x = (at) => left + ((width - left - right) * at) / Math.max(used.length, 1);
  const y = (amount) => height - bottom - ((height - top - bottom) * amount) / Math.max(arena, 1);
  const chart = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": "Memory in use by step" });
  const gap = tick(Math.max(arena, 4));
  for (let amount = 0; amount <= arena; amount += gap) {
    chart.append(
      shape("line", { class: "grid", x1: left, x2: width - right, y1: y(amount), y2: y(amount) }),
      shape("text", { x: left - 6, y: y(amount) + 4, "text-anchor": "end" }, bytes(amount)),
    );
  }
  // More columns than the chart has pixels would only be slower to draw.
  const nSteps = Math.max(1, Math.ceil(used.length / (width - left - right)));
  const columns = fullest(nSteps);
  let lower = columns.map(() => 0);
  kinds.forEach((kind, number) => {
    const upper = lower.map((it, at) => it + columns[at][number]);
    const points = outline(lower, upper, (at) => x(Math.min(at * nSteps, used.length)), y);
    chart.append(shape("polygon", { points, style: `fill: var(--${kind})`, "data-kind": kind }));
    lower = upper;
  });
  chart.append(
    shape("line", { class: "arena", x1: left, x2: width - right, y1: y(arena), y2: y(arena) }),
    shape("text", { x: left, y: height - 6 }, "first step"),
    shape("text", { x: width - right, y: height - 6, "text-anchor": "end" }, `step ${used.length}`),
    shape("line", { class: "cursor", y1: top, y2: height - bottom }),
  );
  byId("timeline").append(chart);
  startCursor(chart, x);
}

/** Describes the step under the cursor. */
function startCursor(chart, x) {
  const { kinds, arena } = data.memory;
  const slider = byId("step");
  slider.max = Math.max(used.length - 1, 0);
  const point = () => {
    const at = Number(slider.value);
    const cursor = chart.querySelector(".cursor");
    cursor.setAttribute("x1", x(at + 0.5));
    cursor.setAttribute("x2", x(at + 0.5));
    const parts = kinds.map((kind, number) =>
      element("span", {}, element("i", { class: "swatch", style: `background: var(--${kind})` }), `${kind} ${bytes(used[at]?.[number] ?? 0)}`));
    const title = element("b", {}, `Step ${at + 1}: ${bytes(totals[at] ?? 0)} of ${bytes(arena)}`);
    byId("moment").replaceChildren(title, " ", element("code", {}, stepText(at)), element("br"), ...parts);
  };
  slider.addEventListener("input", point);
  chart.addEventListener("pointermove", (event) => {
    const bounds = chart.getBoundingClientRect();
    const across = ((event.clientX - bounds.left) / bounds.width) * CHART.width - CHART.left;
    slider.value = Math.floor((across / (CHART.width - CHART.left - CHART.right)) * used.length);
    point();
  });
  slider.value = totals.indexOf(Math.max(...totals));
  point();
}
