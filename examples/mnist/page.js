// Draws the attention part of vkattn-mnist's page from the data beside it; after base.js.
(() => {
const { decode, css, rgb, mix, ramp, paint, element, hover, onTheme } = html;
const data = JSON.parse(document.getElementById("attention-data").textContent);
const { rows, cols, side, heads, units, channels } = data;
const across = cols / side;
const one = channels ? "channel" : "patch";
const root = document.getElementById("attention");
const find = (selector) => root.querySelector(selector);
const percent = (x) => (100 * x).toFixed(1) + "\u2009%";

for (const digit of data.digits) {
  digit.pixels = decode(digit.pixels);
  digit.probability = decode(digit.probability);
  digit.attention = decode(digit.attention); // [heads][units][units]
}

// What is shown: a digit, a head (-1: the mean of all) and the patch or channel that attends.
const state = { digit: 0, head: -1, unit: 0 };
const digitNow = () => data.digits[state.digit];

function weight(head, from, to) {
  const a = digitNow().attention, at = from * units + to;
  if (head >= 0) return a[head * units * units + at];
  let sum = 0;
  for (let h = 0; h < heads; h++) sum += a[h * units * units + at];
  return sum / heads;
}
const rowOf = (head, from) =>
  Float32Array.from({ length: units }, (_, to) => weight(head, from, to));

// The unit that a pixel belongs to.
function unitAt(r, c) {
  if (channels) return (r % side) * side + (c % side);
  return Math.floor(r / side) * across + Math.floor(c / side);
}
function nameOf(unit) {
  const wide = channels ? side : across;
  return `${one} ${Math.floor(unit / wide) + 1}.${(unit % wide) + 1}`;
}

// ---- Colours ----

let theme;
function readTheme() {
  theme = {
    map: [rgb("--map-0"), rgb("--map-1"), rgb("--map-2")],
    over: [rgb("--over-0"), rgb("--over-1")],
    stroke: rgb("--stroke"),
    mark: css("--wrong"),
    line: css("--soft"),
  };
}

// The whole matrix of a head. The square root keeps small weights visible.
function paintMap(canvas, head) {
  paint(canvas, units, units, (from, to) => ramp(theme.map, Math.sqrt(weight(head, from, to))));
}

// The digit in ink over a tint that says how much of the unit's attention a place gets, on the same
// scale as the maps.
function overlay(digit, shares) {
  return (r, c) => {
    const tint = shares ? Math.sqrt(shares[unitAt(r, c)]) : 0;
    const paper = mix(theme.over[0], theme.over[1], tint);
    return mix(paper, theme.stroke, .88 * digit.pixels[r * cols + c]);
  };
}

// ---- The big digit ----

const scale = Math.max(2, Math.ceil(600 / cols));
function paintBig() {
  const shares = rowOf(state.head, state.unit), colour = overlay(digitNow(), shares);
  const canvas = find(".big");
  const context = paint(canvas, cols * scale, rows * scale,
                        (y, x) => colour(Math.floor(y / scale), Math.floor(x / scale)));
  context.strokeStyle = theme.line;
  context.globalAlpha = .35;
  for (let i = side; i < cols; i += side) context.strokeRect(i * scale, -1, 0, rows * scale + 2);
  for (let i = side; i < rows; i += side) context.strokeRect(-1, i * scale, cols * scale + 2, 0);
  context.globalAlpha = 1;
  context.strokeStyle = theme.mark;
  context.lineWidth = channels ? 4 : 6;
  const step = channels ? side : rows * cols, size = channels ? 1 : side;
  const top = channels ? Math.floor(state.unit / side) : Math.floor(state.unit / across) * side;
  const left = channels ? state.unit % side : (state.unit % across) * side;
  for (let r = top; r < rows; r += step)
    for (let c = left; c < cols; c += step)
      context.strokeRect(c * scale + 2, r * scale + 2, size * scale - 4, size * scale - 4);
  const most = Math.max(...shares);
  const who = state.head < 0 ? `all ${heads} heads, mean` : `head ${state.head + 1}`;
  find(".caption").innerHTML = `<b>${nameOf(state.unit)}</b> is framed: row ${state.unit + 1} `
    + `of each map. The deepest tint is <b>${nameOf(shares.indexOf(most))}</b> with `
    + `<b>${percent(most)}</b> of its attention (${who}).`;
}

// ---- Controls ----

const pickers = data.digits.map((digit, i) => {
  const right = digit.read === digit.label;
  const button = element("button", right ? "yes" : "no", find(".picker"));
  element("canvas", "", button);
  const text = element("span", "", button);
  const verdict = right ? "right" : "wrong, is " + digit.label;
  text.innerHTML = `read ${digit.read}<small>${verdict}</small>`;
  button.onclick = () => { state.digit = i; show(); };
  return button;
});

const mean = element("button", "mean", find(".heads"));
mean.innerHTML = `<b>All ${heads} heads</b><span class="ramp"></span><span>0 to 100\u2009% of the `
  + `attention, square-root scale; rows attend to columns</span>`;
mean.onclick = () => { state.head = -1; show(); };

const cards = Array.from({ length: heads }, (_, head) => {
  const button = element("button", "", find(".heads"));
  const title = element("div", "title", button);
  title.innerHTML = `<b>Head ${head + 1}</b><span></span>`;
  const pair = element("div", "pair", button), frame = element("div", "map", pair);
  const map = element("canvas", "", frame), row = element("div", "row", frame);
  const over = element("canvas", "", pair);
  button.onclick = () => { state.head = state.head === head ? -1 : head; show(); };
  hover(map, (y, x) => {
    const from = Math.floor(y * units), to = Math.floor(x * units);
    return `${nameOf(from)} \u2192 ${nameOf(to)}: ${percent(weight(head, from, to))}`;
  });
  hover(over, (y, x) => {
    const to = unitAt(Math.floor(y * rows), Math.floor(x * cols));
    return `${nameOf(state.unit)} \u2192 ${nameOf(to)}: ${percent(weight(head, state.unit, to))}`;
  });
  return { button, map, row, over, most: title.lastChild };
});

const big = find(".big");
hover(big, (y, x) => {
  const to = unitAt(Math.floor(y * rows), Math.floor(x * cols));
  const share = percent(weight(state.head, state.unit, to));
  return `${nameOf(state.unit)} \u2192 ${nameOf(to)}: ${share}`;
});
big.onclick = (event) => {
  const box = big.getBoundingClientRect();
  const r = Math.floor((event.clientY - box.top) / box.height * rows);
  const c = Math.floor((event.clientX - box.left) / box.width * cols);
  state.unit = unitAt(Math.min(Math.max(r, 0), rows - 1), Math.min(Math.max(c, 0), cols - 1));
  show();
};
big.onkeydown = (event) => {
  const wide = channels ? side : across;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key];
  if (!step || state.unit + step < 0 || state.unit + step >= units) return;
  event.preventDefault();
  state.unit += step;
  show();
};

// ---- Everything ----

function show() {
  const digit = digitNow();
  pickers.forEach((button, i) => {
    button.setAttribute("aria-pressed", i === state.digit);
    paint(button.firstChild, cols, rows, overlay(data.digits[i], null));
  });
  mean.setAttribute("aria-pressed", state.head < 0);
  cards.forEach(({ button, map, row, over, most }, head) => {
    const shares = rowOf(head, state.unit);
    button.setAttribute("aria-pressed", head === state.head);
    paintMap(map, head);
    paint(over, cols, rows, overlay(digit, shares));
    row.style.top = `calc(${100 * state.unit / units}% - 1px)`;
    row.style.height = `calc(${100 / units}% + 2px)`;
    most.textContent = "up to " + percent(Math.max(...shares));
  });
  find(".bars").innerHTML = [...digit.probability].map((p, k) =>
    `<div class="${k === digit.read ? "read" : ""}"><span>${k}</span><i style="--p:${p}"></i>`
    + `<span>${percent(p)}</span></div>`).join("");
  paintBig();
}

// Begins at the unit with the most ink, which is where there is something to see.
function inkiest(digit) {
  const ink = new Float32Array(units);
  digit.pixels.forEach((p, i) => { ink[unitAt(Math.floor(i / cols), i % cols)] += p; });
  return ink.indexOf(Math.max(...ink));
}
readTheme();
state.unit = inkiest(digitNow());
show();
onTheme(() => {
  readTheme();
  show();
});
})();
