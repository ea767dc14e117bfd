// The page as a whole: facts, legend, and details of the tensor in the URL's fragment.

function fact(...children) {
  return element("li", {}, ...children);
}

/** Returns the quality of the plan by its objective. */
function proof() {
  const { search, times } = plan;
  const [cost, bound] = times ? [times.plan, times.lower_bound] : [plan.bytes_total, search.lower_bound_bytes];
  if (search.optimal) return times ? "proved fastest" : "proved optimal";
  return bound ? `within ${((100 * (cost - bound)) / bound).toFixed(1)} % of the lower bound` : "not proved optimal";
}

function showFacts() {
  const { axes, gpus } = plan;
  byId("facts").append(
    fact(element("b", {}, gpus), ` GPUs, mesh ${axes.length ? axes.join(" × ") : "1"}`),
    fact(element("b", {}, bytes(plan.bytes_total)), ` moved in a ${plan.mode === "inference" ? "prediction" : "step"}`),
    fact(element("b", {}, bytes(plan.peak_memory_bytes_per_gpu)), " on each GPU"),
    fact(`strategy ${plan.strategy}, `, element("b", {}, proof())),
    fact(`${plan.tensors.length} tensors, ${plan.ops.length} operators, ${data.steps.length} steps, ${plan.precision}`),
  );
}

/** Shows only the tensors of one tiling, or all. */
function filter(button, tiling) {
  const isOn = button.getAttribute("aria-pressed") === "true";
  for (const it of byId("legend").querySelectorAll("button")) it.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", String(!isOn));
  picture.classList.toggle("filtered", !isOn);
  for (const tensor of plan.tensors) {
    boxes.get(tensor.id).classList.toggle("kept", !isOn && tilingText(tensor.tiling) === tiling);
  }
}

function showLegend() {
  const counts = new Map();
  for (const { tiling } of plan.tensors) {
    const text = tilingText(tiling);
    counts.set(text, { tiling, n: (counts.get(text)?.n ?? 0) + 1 });
  }
  const sorted = [...counts].sort((a, b) => b[1].n - a[1].n);
  for (const [text, { tiling, n }] of sorted) {
    const button = element("button", { type: "button", "aria-pressed": "false" }, flag(tiling), element("code", {}, text), ` ${n}`);
    button.addEventListener("click", () => filter(button, text));
    byId("legend").append(button);
  }
  byId("legend").append(element("p", {},
    "A stripe for each axis of the mesh, slowest first: r is replicated, P0, P1, .. split along that dim. Orange edges and frames move data, and are as thick as its bytes: ",
    "edges before the operator, frames behind it. Dashed frames are gradients, dark ones parameters and states. Gradients lead up, beside the tensors that they read."));
}

/** Describes the changes of a tensor's tiling at an operator. */
function changes(operator, id) {
  return operator.conversions.filter((it) => it.tensor === id).map((it, at) =>
    element("span", { class: it.bytes ? "cost" : "free" }, `${at ? ";" : ""} ${tilingText(it.from)} → ${tilingText(it.to)}, ${it.bytes ? bytes(it.bytes) : "moves nothing"}`));
}

const rows = (items) => element("ul", {}, ...items.map((it) => element("li", {}, ...it)));

function details(tensor) {
  const width = N_BYTES[tensor.dtype];
  const local = localShape(tensor);
  const operator = operators.get(tensor.id);
  const box = boxes.get(tensor.id);
  const list = [
    ["kind", [tensor.kind]],
    ["part of", [box.dataset.layer ?? ""]],
    ["source", [box.dataset.place ?? ""]],
    ["tiling", [flag(tensor.tiling), " ", element("code", {}, tilingText(tensor.tiling))]],
    ["whole", [element("code", {}, `${tensor.dtype}[${tensor.shape.join(", ")}]`), `, ${bytes(product(tensor.shape) * width)}`]],
    ["each GPU", [element("code", {}, `${tensor.dtype}[${local.join(", ")}]`), `, ${bytes(product(local) * width)}`]],
  ];
  if (operator) {
    const made = changes(operator, tensor.id);
    list.push(
      ["operator", [element("code", {}, operator.name)]],
      ["signature", [element("code", {}, operator.signature)]],
      ["split by", [element("code", {}, `[${operator.form.join(" ")}]`)]],
      ["computed from", [rows([...new Set(operator.inputs)].map((id) => [link(id), ...changes(operator, id)]))]],
      ["then", made.length ? made : ["stays as it is"]],
    );
  }
  const used = readers.get(tensor.id) ?? [];
  if (used.length) list.push(["read by", [rows(used.map((it) => [link(it.output), ...changes(it, tensor.id)]))]]);
  const full = list.filter(([, children]) => children[0] !== "");
  return element("dl", {}, ...full.flatMap(([term, children]) => [element("dt", {}, term), element("dd", {}, ...children)]));
}

function choose(tensor) {
  mark(tensor);
  byId("name").value = tensor.name;
  byId("tensor").replaceChildren(element("h3", {}, tensor.name), details(tensor));
  byId("tensor").dataset.tensor = tensor.id;
  showTiles(tensor);
}

/** Returns the tensor with a name or number, such as `v12`. */
const named = (name) => plan.tensors.find((it) => it.name === name) ?? plan.tensors.find((it) => `v${it.id}` === name);

/** Returns the tensor in the URL's fragment. */
function ofFragment() {
  const name = new URLSearchParams(location.hash.slice(1)).get("tensor");
  return name === null ? undefined : named(name);
}

function startChoice() {
  byId("names").append(...plan.tensors.map((it) => element("option", { value: it.name })));
  const find = () => {
    const tensor = named(byId("name").value.trim());
    if (tensor) goTo(tensor);
  };
  byId("name").addEventListener("change", find);
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  addEventListener("hashchange", () => {
    const tensor = ofFragment();
    if (tensor) choose(tensor);
  });
  const tensor = ofFragment();
  if (tensor) {
    choose(tensor);
    return;
  }
  const first = plan.tensors.find((it) => it.kind === "param") ?? plan.tensors[0];
  byId("tensor").replaceChildren(element("p", {}, "Choose a tensor: click on it, or type its name. For example ", link(first.id), "."));
}

function startScheme() {
  byId("scheme").addEventListener("click", () => {
    const now = document.documentElement.style.colorScheme;
    const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.style.colorScheme = isDark ? "light" : "dark";
    if (chosen !== null) showTiles(plan.tensors[chosen]);
  });
}

showFacts();
showLegend();
showBars();
showTransfers();
showLayers();
showTimeline();
startGraph();
startChoice();
startScheme();
document.documentElement.dataset.ready = String(byId("errors").hidden);
