// The tables of the largest transfers and of the parallelism of layers.

/** Makes a table's rows. Each cell is text or an element. */
function fill(table, heads, lines) {
  const row = (kind, cells) => element("tr", {}, ...cells.map((it) => element(kind, {}, it)));
  table.append(element("thead", {}, row("th", heads)), element("tbody", {}, ...lines.map((it) => row("td", it))));
}

/** Makes a link to a tensor, with another text if one is given. */
const link = (id, name = tensors.get(id).name) => element("a", { href: `#tensor=${token(tensors.get(id))}` }, name);

function showTransfers() {
  const total = Math.max(plan.bytes_total, 1);
  const lines = data.transfers.map((it) => [
    bytes(it.bytes),
    `${((100 * it.bytes) / total).toFixed(1)} %`,
    element("span", {}, link(it.tensor, it.name), it.n > 1 ? ` (${it.n} times)` : ""),
    element("code", {}, `${it.from} → ${it.to}`),
    it.collectives,
    [it.operator, it.pass, it.place].filter((it) => it).join(", "),
  ]);
  fill(byId("transfers"), ["bytes", "share", "tensor", "tilings", "collectives", "operator"], lines);
  byId("flows").hidden = !lines.length;
}

function showLayers() {
  const isShown = (_, column) => column !== 2 || plan.mode === "training";
  const lines = data.layers.map((it) => it.filter(isShown));
  fill(byId("layers"), ["layer", "forward", "gradients", "weights"].filter(isShown), lines);
  byId("parallelism").hidden = !lines.length;
}
