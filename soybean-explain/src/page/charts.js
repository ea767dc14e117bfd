// The bytes beside those of the baselines, and the memory over the steps.

function showBars() {
  const { data: dataBytes, model, recursive, unpinned } = plan.baselines;
  const rows = [
    ["data parallelism", dataBytes, ""],
    ["model parallelism", model, ""],
    ["recursive search", recursive, ""],
    ...(unpinned === undefined ? [] : [["this search without pins", unpinned, ""]]),
    [`this plan (${plan.strategy})`, plan.bytes_total, "ours"],
    // No bound is known if bytes are not the objective.
    ...(plan.search.lower_bound_bytes ? [["lower bound", plan.search.lower_bound_bytes, "bound"]] : []),
  ];
  const most = Math.max(...rows.map((it) => it[1]), 1);
  for (const [label, amount, kind] of rows) {
    const bar = element("i", { style: `width: ${(100 * amount) / most}%` });
    const ratio = plan.bytes_total && !kind ? ` · ${(amount / plan.bytes_total).toFixed(2)} ×` : "";
    byId("bars").append(
      element("span", {}, label),
      element("span", { class: `track ${kind}` }, bar),
      element("span", { class: "value" }, bytes(amount) + ratio),
    );
  }
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

function showTimeline() {
  const { used, kinds, arena } = data.memory;
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
  let lower = used.map(() => 0);
  kinds.forEach((kind, number) => {
    const upper = lower.map((it, at) => it + used[at][number]);
    const points = outline(lower, upper, x, y);
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
  const { used, kinds, arena } = data.memory;
  const slider = byId("step");
  slider.max = Math.max(used.length - 1, 0);
  const totals = used.map((it) => it.reduce((sum, amount) => sum + amount, 0));
  const point = () => {
    const at = Number(slider.value);
    const cursor = chart.querySelector(".cursor");
    cursor.setAttribute("x1", x(at + 0.5));
    cursor.setAttribute("x2", x(at + 0.5));
    const parts = kinds.map((kind, number) =>
      element("span", {}, element("i", { class: "swatch", style: `background: var(--${kind})` }), `${kind} ${bytes(used[at]?.[number] ?? 0)}`));
    const title = element("b", {}, `Step ${at + 1}: ${bytes(totals[at] ?? 0)} of ${bytes(arena)}`);
    byId("moment").replaceChildren(title, " ", element("code", {}, data.steps[at] ?? ""), element("br"), ...parts);
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
