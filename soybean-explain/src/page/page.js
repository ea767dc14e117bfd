// The page as a whole: facts, legend, and details of the tensor in the URL's fragment.

function fact(...children) {
  return element("li", {}, ...children);
}

/** Returns the quality of the plan by its objective. */
function proof() {
  const { search, times } = plan;
  const [cost, bound] = times ? [times.plan, times.lower_bound] : [plan.bytes_total, search.lower_bound_bytes];
  if (search.optimal) return times ? "proved fastest among tilings" : "proved optimal among tilings";
  return bound ? `within ${((100 * (cost - bound)) / bound).toFixed(1)} % of the lower bound` : "not proved optimal";
}

function showFacts() {
  const { axes, gpus } = plan;
  byId("facts").append(
    fact(element("b", {}, gpus), ` GPUs, mesh ${axes.length ? axes.join(" × ") : "1"}`),
    fact(element("b", {}, bytes(plan.bytes_total)), ` moved in a ${plan.mode === "inference" ? "prediction" : "step"}`),
    fact(element("b", {}, bytes(plan.peak_memory_bytes_per_gpu)), " on each GPU"),
    fact(`strategy ${plan.strategy}, `, element("b", {}, proof())),
    ...(plan.cluster ? [fact(element("b", {}, seconds(plan.seconds)), ` predicted on ${plan.cluster}, ${seconds(plan.communication_seconds)} of it communication`)] : []),
    fact("work ", element("b", {}, plan.work.toFixed(2)), " times that of one device"),
    fact(`${data.tensors} tensors, ${data.operators} operators, ${data.program.steps.length} steps, ${plan.precision}`),
  );
  byId("warnings").append(...plan.warnings.map((it) => element("li", {}, `Warning: ${it}`)));
}

/** The tiling that the legend keeps, or null. */
let kept = null;

/** Dims the boxes of other tilings than the kept one. */
function showKept() {
  picture.classList.toggle("filtered", kept !== null);
  for (const [id, box] of boxes) box.classList.toggle("kept", tilingText(tensors.get(id).tiling) === kept);
}

/** Shows only the tensors of one tiling, or all. */
function filter(button, tiling) {
  const isOn = button.getAttribute("aria-pressed") === "true";
  for (const it of byId("legend").querySelectorAll("button")) it.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", String(!isOn));
  kept = isOn ? null : tiling;
  showKept();
}

function showLegend() {
  const counts = new Map();
  for (const { tiling, n_equal } of plan.tensors) {
    const text = tilingText(tiling);
    counts.set(text, { tiling, n: (counts.get(text)?.n ?? 0) + n_equal });
  }
  const sorted = [...counts].sort((a, b) => b[1].n - a[1].n);
  for (const [text, { tiling, n }] of sorted) {
    const button = element("button", { type: "button", "aria-pressed": "false" }, flag(tiling), element("code", {}, text), ` ${n}`);
    button.addEventListener("click", () => filter(button, text));
    byId("legend").append(button);
  }
  byId("legend").append(element("p", {},
    "A stripe for each axis of the mesh, slowest first: r is replicated, P0, P1, .. split along that dim. Orange edges and frames move data, and are as thick as its bytes: ",
    "edges before the operator, frames behind it. Dashed frames are gradients, dark ones parameters and states. Gradients lead up, beside the tensors that they read. A box with × 24 is drawn for 24 equal tensors of repeated layers; its bytes and those of its edges are the sums of all."));
}

/** Describes the changes of a tensor's tiling at an operator. */
function changes(operator, id) {
  return operator.conversions.filter((it) => it.tensor === id).map((it, at) =>
    element("span", { class: it.bytes ? "cost" : "free" }, `${at ? ";" : ""} ${tilingText(it.from)} → ${tilingText(it.to)}, ${it.bytes ? bytes(it.bytes) : "moves nothing"}`));
}

/** Describes the changes of a tensor's tiling at an operator, after other words. */
const changesText = (operator, id) =>
  operator.conversions.filter((it) => it.tensor === id).map((it) => `: ${tilingText(it.from)} to ${tilingText(it.to)}, ${bytes(it.bytes)}`).join("");

/** Returns the description of a box or an edge. */
function titleOf(part) {
  if (part.dataset.tensor) {
    const tensor = tensors.get(Number(part.dataset.tensor));
    const operator = operators.get(tensor.id);
    return `${tensor.name} = ${operator ? `${operator.name} ${operator.signature}${changesText(operator, tensor.id)}` : tensor.kind}`;
  }
  const [from, to] = [part.dataset.from, part.dataset.to].map((id) => tensors.get(Number(id)));
  return `${from.name} for ${to.name}${changesText(operators.get(to.id), from.id)}`;
}

const rows = (items) => element("ul", {}, ...items.map((it) => element("li", {}, ...it)));

/** Describes a tensor. `asked` is the name by which it was found, if it is drawn for another one. */
function details(tensor, asked) {
  const width = N_BYTES[tensor.dtype];
  const local = localShape(tensor);
  const operator = operators.get(tensor.id);
  const list = [
    ["asked for", [asked === tensor.name ? "" : element("code", {}, asked)]],
    ["drawn for", [tensor.n_equal > 1 ? `${tensor.n_equal} equal tensors of repeated layers` : ""]],
    ["kind", [tensor.kind]],
    ["part of", [tensor.layer]],
    ["source", [tensor.place]],
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

function choose(tensor, asked) {
  mark(tensor);
  byId("name").value = asked;
  byId("tensor").replaceChildren(element("h3", {}, tensor.name), details(tensor, asked));
  byId("tensor").dataset.tensor = tensor.id;
  showTiles(tensor);
}

const numbered = new Map(plan.tensors.map((it) => [`v${it.id}`, it]));
/** The drawn tensors by the names and numbers of the equal ones that are not drawn. */
const others = new Map();
for (const [drawn, ids] of data.others.groups) for (const id of ids) others.set(`v${id}`, tensors.get(drawn));
const othersNames = data.others.names.map(([id, name]) => {
  others.set(name, others.get(`v${id}`));
  return name;
});

/** Returns the tensor with a name or number, such as `v12`, or the one that is drawn for it. */
const named = (name) => plan.tensors.find((it) => it.name === name) ?? numbered.get(name) ?? others.get(name);

/** Chooses the tensor in the URL's fragment, and returns true if there is one. */
function chooseFragment() {
  const name = new URLSearchParams(location.hash.slice(1)).get("tensor");
  const tensor = name === null ? undefined : named(name);
  if (tensor) choose(tensor, numbered.has(name) ? tensor.name : name);
  return tensor !== undefined;
}

function startChoice() {
  const all = [...plan.tensors.map((it) => it.name), ...othersNames];
  byId("names").append(...all.map((it) => element("option", { value: it })));
  const find = () => {
    const name = byId("name").value.trim();
    const tensor = named(name);
    if (tensor && others.get(name) === tensor) location.hash = `tensor=${encodeURIComponent(name)}`;
    else if (tensor) goTo(tensor);
  };
  byId("name").addEventListener("change", find);
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  addEventListener("hashchange", chooseFragment);
  if (chooseFragment()) return;
  const first = plan.tensors.find((it) => it.kind === "param") ?? plan.tensors[0];
  byId("tensor").replaceChildren(element("p", {}, "Choose a tensor: click on it, or type its name. For example ", link(first.id), "."));
}

function startScheme() {
  byId("scheme").addEventListener("click", () => {
    const now = document.documentElement.style.colorScheme;
    const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.style.colorScheme = isDark ? "light" : "dark";
    if (chosen !== null) showTiles(tensors.get(chosen));
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
