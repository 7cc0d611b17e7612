// What the pages of the tools share: numbers, colours, canvases and the tip beside the pointer.
"use strict";
const html = (() => {
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const digit = new Map([...alphabet].map((c, i) => [c, i]));

// Shares 0 .. 1 in two characters each, as html_put_share writes them; "!!" is NaN.
function decode(text) {
  const out = new Float32Array(text.length / 2);
  for (let i = 0; i < out.length; i++)
    out[i] = (64 * digit.get(text[2 * i]) + digit.get(text[2 * i + 1])) / 4095;
  return out;
}

// Colours come from the style sheet, so that both themes share the scripts.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (name) => [1, 3, 5].map((i) => parseInt(css(name).slice(i, i + 2), 16));
const mix = (a, b, t) => a.map((x, i) => x + (b[i] - x) * t);

// The colour of t, 0 .. 1, between three of them.
const ramp = (map, t) => t < .5 ? mix(map[0], map[1], 2 * t) : mix(map[1], map[2], 2 * t - 1);

function paint(canvas, width, height, colour) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [r, g, b] = colour(y, x);
      image.data.set([r, g, b, 255], 4 * (y * width + x));
    }
  context.putImageData(image, 0, 0);
  return context;
}

function element(tag, className, parent) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  parent.append(made);
  return made;
}

const tip = element("div", "tip", document.body);
tip.hidden = true;

// Shows text(y, x), both 0 .. 1, beside the pointer.
function hover(target, text) {
  target.addEventListener("pointermove", (event) => {
    const box = target.getBoundingClientRect();
    const inside = (v) => Math.min(Math.max(v, 0), .9999);
    tip.textContent = text(inside((event.clientY - box.top) / box.height),
                           inside((event.clientX - box.left) / box.width));
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY + 16 + "px";
  });
  target.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// Calls again() whenever the other theme is chosen.
function onTheme(again) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

return { decode, css, rgb, mix, ramp, paint, element, hover, onTheme };
})();
