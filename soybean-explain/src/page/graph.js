// The graph: zoom, pan, and the choice of a tensor.

const canvas = byId("canvas");
let picture = canvas.querySelector("svg");
const size = { width: 0, height: 0 };
const view = { x: 0, y: 0, width: 0, height: 0 };
const boxes = new Map();
const nearEdges = new Map();

/** Finds the parts of the picture. */
function readPicture() {
  const { width, height } = picture.viewBox.baseVal;
  Object.assign(size, { width, height });
  boxes.clear();
  nearEdges.clear();
  for (const box of picture.querySelectorAll(".tensor")) boxes.set(Number(box.dataset.tensor), box);
  for (const edge of picture.querySelectorAll(".edge")) {
    for (const end of [edge.dataset.from, edge.dataset.to]) {
      nearEdges.set(Number(end), [...(nearEdges.get(Number(end)) ?? []), edge]);
    }
  }
}

/** Shows the view. A transform in space moves what is drawn already, instead of drawing it anew. */
function show() {
  const enlarged = hasSize() ? canvas.clientWidth / view.width : 1;
  picture.style.transform = `translate3d(${-view.x * enlarged}px, ${-view.y * enlarged}px, 0) scale(${enlarged})`;
}

/** Returns the number of the picture's pixels for one pixel of the screen. */
const scale = () => Math.max(view.width / canvas.clientWidth, view.height / canvas.clientHeight);

/** Is false while nothing of the canvas can be seen, as in a hidden frame. */
const hasSize = () => canvas.clientWidth > 0 && canvas.clientHeight > 0;

/** Sets the visible part by its center and scale. The view has the shape of the canvas. */
function look(x, y, wanted) {
  if (!hasSize()) {
    Object.assign(view, { x: 0, y: 0, ...size });
    show();
    return;
  }
  view.width = canvas.clientWidth * wanted;
  view.height = canvas.clientHeight * wanted;
  view.x = x - view.width / 2;
  view.y = y - view.height / 2;
  show();
}

/** Returns the center of a tensor's box. */
function middle(tensor) {
  const box = boxes.get(tensor.id);
  const { width, height } = box.getBBox();
  const { e, f } = box.transform.baseVal.getItem(0).matrix;
  return [e + width / 2, f + height / 2];
}

/** Shows the whole graph. */
function showAll() {
  look(size.width / 2, size.height / 2, 1.04 * Math.max(size.width / canvas.clientWidth, size.height / canvas.clientHeight));
}

/** Shows the whole graph, or its beginning if the whole would be too small to read. */
function showFirst() {
  showAll();
  if (!hasSize() || scale() < 2.5) return;
  const shown = plan.tensors.filter((it) => boxes.has(it.id));
  const [x] = middle(shown.find((it) => it.kind === "input") ?? shown[0]);
  look(x, 0.48 * 2.2 * canvas.clientHeight, 2.2);
}

function zoom(factor, x = view.x + view.width / 2, y = view.y + view.height / 2) {
  const wanted = Math.min(Math.max(scale() / factor, 0.2), 40);
  const ratio = wanted / scale();
  look(x + (view.x + view.width / 2 - x) * ratio, y + (view.y + view.height / 2 - y) * ratio, wanted);
}

function pan(right, down) {
  look(view.x + view.width / 2 + right, view.y + view.height / 2 + down, scale());
}

/** Returns the picture's position under the pointer. */
function under(event) {
  const bounds = canvas.getBoundingClientRect();
  return [view.x + (event.clientX - bounds.left) * scale(), view.y + (event.clientY - bounds.top) * scale()];
}

let chosen = null;

/** Marks a tensor and its edges, and moves it into view. */
function mark(tensor) {
  if (!boxes.has(tensor.id)) showStates(true);
  for (const it of picture.querySelectorAll(".chosen, .near")) it.classList.remove("chosen", "near");
  chosen = tensor.id;
  const box = boxes.get(tensor.id);
  box.classList.add("chosen");
  for (const edge of nearEdges.get(tensor.id) ?? []) edge.classList.add("near");
  const [x, y] = middle(tensor);
  const isSeen = x > view.x && x < view.x + view.width && y > view.y && y < view.y + view.height;
  if (!isSeen || scale() > 1.6) look(x, y, Math.min(scale(), 1.2));
}

const goTo = (tensor) => {
  location.hash = `tensor=${token(tensor)}`;
};

/** Chooses the next or previous tensor of the list. */
function step(by) {
  const shown = plan.tensors.filter((it) => boxes.has(it.id));
  const at = shown.findIndex((it) => it.id === chosen);
  goTo(shown[at < 0 ? 0 : (at + by + shown.length) % shown.length]);
}

let hasStates = false;
/** The picture that is not shown: at first the one with the optimizer's states. */
let otherPicture = byId("figure-with-states").content.querySelector("svg");

/** Shows or hides the optimizer's states. */
function showStates(isShown) {
  if (isShown === hasStates) return;
  hasStates = isShown;
  byId("states").checked = isShown;
  picture.replaceWith(otherPicture);
  [picture, otherPicture] = [otherPicture, picture];
  readPicture();
  showKept();
  showAll();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = 90 * scale();
  const actions = {
    ArrowLeft: () => pan(-far, 0),
    ArrowRight: () => pan(far, 0),
    ArrowUp: () => pan(0, -far),
    ArrowDown: () => pan(0, far),
    "+": () => zoom(1.3),
    "=": () => zoom(1.3),
    "-": () => zoom(1 / 1.3),
    0: showAll,
    n: () => step(1),
    p: () => step(-1),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function drag(down) {
  const [x, y] = under(down);
  const [left, top] = [down.clientX, down.clientY];
  let isMoved = false;
  const move = (event) => {
    isMoved ||= Math.hypot(event.clientX - left, event.clientY - top) > 4;
    if (!isMoved) return;
    canvas.classList.add("held");
    const [nowX, nowY] = under(event);
    pan(x - nowX, y - nowY);
  };
  const end = (event) => {
    canvas.classList.remove("held");
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    const box = event.target.closest?.(".tensor");
    if (!isMoved && box) goTo(tensors.get(Number(box.dataset.tensor)));
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
}

function startGraph() {
  readPicture();
  canvas.addEventListener("keydown", press);
  canvas.addEventListener("pointerdown", drag);
  canvas.addEventListener("pointerover", (event) => {
    const part = event.target.closest?.(".tensor, .edge");
    if (part && !part.querySelector("title")) part.prepend(shape("title", {}, titleOf(part)));
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...under(event));
  }, { passive: false });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    const factor = Number(button.dataset.zoom);
    button.addEventListener("click", () => (factor ? zoom(factor) : showAll()));
  }
  let hadSize = hasSize();
  new ResizeObserver(() => {
    if (hadSize) look(view.x + view.width / 2, view.y + view.height / 2, scale());
    else showFirst();
    hadSize = hasSize();
  }).observe(canvas);
  byId("states").addEventListener("change", () => {
    showStates(byId("states").checked);
    if (boxes.has(chosen)) mark(tensors.get(chosen));
  });
  // Without states the two pictures are the same.
  byId("choose-states").hidden = otherPicture.querySelectorAll(".tensor").length === boxes.size;
  showFirst();
}
