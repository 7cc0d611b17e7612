// Draws the maps of vkattn run's page from the data beside it; after base.js.
(() => {
const { decode, css, rgb, ramp, paint, element, hover, onTheme } = html;
const data = JSON.parse(document.getElementById("attention-data").textContent);
const { heads, queries, keys } = data;
const root = document.getElementById("attention");
const find = (selector) => root.querySelector(selector);
for (const input of data.inputs) input.roots = decode(input.roots); // [heads][queries][keys]

// Axes with more than this get no labels beside the large map.
const MAX_LABELS = 48;

// What is shown: an input, a head (-1: the mean of all) and the query that attends.
const state = { input: 0, head: -1, query: queries - 1 };
const now = () => data.inputs[state.input];

// The square root of a weight, which is what the colours follow.
function rootOf(head, query, key) {
  const { roots } = now(), at = query * keys + key;
  if (head >= 0) return roots[head * queries * keys + at];
  let sum = 0;
  for (let h = 0; h < heads; h++) sum += roots[h * queries * keys + at] ** 2;
  return Math.sqrt(sum / heads);
}
const weight = (head, query, key) => rootOf(head, query, key) ** 2;

function percent(x) {
  if (Number.isNaN(x)) return "not a number";
  if (x === 0) return "0\u2009%";
  const shown = 100 * x;
  return (shown < .001 ? "under 0.001" : Number(shown.toPrecision(3)).toString()) + "\u2009%";
}
const queryText = (i) => now().queries ? now().queries[i] : String(i);
const keyText = (j) => now().keys ? now().keys[j] : String(j);
const queryName = (i) => now().queries ? `query ${i} \u201c${queryText(i)}\u201d` : `query ${i}`;
const keyName = (j) => now().keys ? `key ${j} \u201c${keyText(j)}\u201d` : `key ${j}`;
const headName = (head) => head < 0 ? `all ${heads} heads, mean` : `head ${head + 1}`;
const told = (head, i, j) =>
  `${queryName(i)} \u2192 ${keyName(j)}: ${percent(weight(head, i, j))}`;

// ---- Colours ----

let theme;
function readTheme() {
  theme = { map: [0, 1, 2].map((i) => rgb("--map-" + i)), bad: rgb("--wrong") };
}
const colour = (x) => Number.isNaN(x) ? theme.bad : ramp(theme.map, Math.min(x, 1));
function paintMap(canvas, head) {
  paint(canvas, keys, queries, (i, j) => colour(rootOf(head, i, j)));
}

// Ink that can be read on a tint.
const inkOn = ([r, g, b]) => .3 * r + .59 * g + .11 * b > 128 ? "#1c1e22" : "#ffffff";

// ---- The frame ----

const pickers = data.inputs.map((_, i) => {
  if (data.inputs.length === 1) return null;
  const button = element("button", "", find(".picker"));
  button.textContent = `input ${i}`;
  button.onclick = () => { state.input = i; showInput(); };
  return button;
});

const large = find(".large");
element("div", "", large);
const topAxis = element("div", "top", large), leftAxis = element("div", "left", large);
const frame = element("div", "frame", large), big = element("canvas", "", frame);
const bigRow = element("div", "row", frame);
frame.style.aspectRatio = Math.min(Math.max(keys / queries, .75), 8);
big.tabIndex = 0;
big.setAttribute("role", "img");
hover(big, (y, x) => told(state.head, Math.floor(y * queries), Math.floor(x * keys)));
big.onclick = (event) => {
  const box = big.getBoundingClientRect();
  choose(Math.floor((event.clientY - box.top) / box.height * queries));
};
big.onkeydown = (event) => {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  choose(state.query + step);
};
function choose(query) {
  state.query = Math.min(Math.max(query, 0), queries - 1);
  showQuery();
}

const mean = element("button", "mean", find(".heads"));
element("b", "", mean).textContent = `All ${heads} heads`;
element("span", "ramp", mean);
element("span", "", mean).textContent = "0 to 100\u2009%, square-root scale";
mean.onclick = () => { state.head = -1; showHead(); };

const cards = Array.from({ length: heads }, (_, head) => {
  const button = element("button", "", find(".heads"));
  const title = element("div", "title", button);
  element("b", "", title).textContent = `Head ${head + 1}`;
  const most = element("span", "", title), map = element("div", "map", button);
  const canvas = element("canvas", "", map), row = element("div", "row", map);
  canvas.style.aspectRatio = frame.style.aspectRatio;
  button.onclick = () => { state.head = state.head === head ? -1 : head; showHead(); };
  hover(canvas, (y, x) => told(head, Math.floor(y * queries), Math.floor(x * keys)));
  return { button, canvas, row, most };
});

// ---- Tokens ----

// The queries to choose from, and the keys tinted by what they get; in self-attention one strip.
let queryChips, keyChips;
function makeWords() {
  const words = find(".words");
  words.replaceChildren();
  element("span", "", words).textContent = data.self ? "tokens" : "queries";
  const strip = element("div", "", words);
  queryChips = Array.from({ length: queries }, (_, i) => {
    const chip = element("button", "", strip);
    chip.textContent = queryText(i);
    chip.onclick = () => choose(i);
    return chip;
  });
  keyChips = queryChips;
  if (!data.self) {
    element("span", "", words).textContent = "keys";
    const other = element("div", "", words);
    keyChips = Array.from({ length: keys }, (_, j) => {
      const chip = element("i", "", other);
      chip.textContent = keyText(j);
      return chip;
    });
  }
  keyChips.forEach((chip, j) => hover(chip, () => told(state.head, state.query, j)));
}

function makeAxis(axis, count, text) {
  axis.replaceChildren();
  for (let i = 0; count <= MAX_LABELS && i < count; i++)
    element("span", "", axis).textContent = text(i);
}

// ---- Showing ----

function showQuery() {
  const { head, query } = state;
  const place = (row) => {
    row.style.top = `calc(${100 * query / queries}% - 1px)`;
    row.style.height = `calc(${100 / queries}% + 2px)`;
  };
  place(bigRow);
  cards.forEach(({ row, most }, h) => {
    place(row);
    let top = 0;
    for (let j = 0; j < keys; j++) top = Math.max(top, weight(h, query, j));
    most.textContent = "up to " + percent(top);
  });
  let best = 0;
  keyChips.forEach((chip, j) => {
    const tint = colour(rootOf(head, query, j));
    chip.style.setProperty("--tint", `rgb(${tint.map(Math.round)})`);
    chip.style.setProperty("--on", inkOn(tint));
    if (rootOf(head, query, j) > rootOf(head, query, best)) best = j;
  });
  queryChips.forEach((chip, i) => chip.setAttribute("aria-pressed", i === query));
  const strip = queryChips[query].parentElement; // long ones scroll
  strip.scrollTop = queryChips[query].offsetTop - strip.offsetTop - 60;
  [...leftAxis.children].forEach((label, i) => label.classList.toggle("on", i === query));
  const caption = find(".caption");
  caption.replaceChildren();
  element("b", "", caption).textContent = queryName(query);
  caption.append(" is framed. Most of its attention, ");
  element("b", "", caption).textContent = percent(weight(head, query, best));
  caption.append(", goes to ");
  element("b", "", caption).textContent = keyName(best);
  caption.append(` (${headName(head)}).`);
}

function showHead() {
  mean.setAttribute("aria-pressed", state.head < 0);
  cards.forEach(({ button }, head) => button.setAttribute("aria-pressed", head === state.head));
  big.setAttribute("aria-label", `The attention of ${headName(state.head)}`);
  paintMap(big, state.head);
  showQuery();
}

function showInput() {
  pickers.forEach((button, i) => button && button.setAttribute("aria-pressed", i === state.input));
  makeWords();
  makeAxis(topAxis, keys, keyText);
  makeAxis(leftAxis, queries, queryText);
  cards.forEach(({ canvas }, head) => paintMap(canvas, head));
  showHead();
}

readTheme();
showInput();
onTheme(() => {
  readTheme();
  showInput();
});
})();
