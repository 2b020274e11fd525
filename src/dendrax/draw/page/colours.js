// The colours of the page, read from its style so that light and dark have one source.

const RAMP = [[253, 231, 160], [253, 174, 97], [240, 102, 80], [196, 45, 107], [110, 20, 118], [44, 6, 70]];
const NIGHT = [[52, 26, 88], [110, 30, 125], [180, 54, 122], [238, 104, 84], [254, 176, 110], [252, 240, 180]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function readColours() {
  const names = ["back", "raised", "ink", "quiet", "line", "row", "wire", "accent", "mark", "parameter", "internal", "delay", "data", "module", "empty"];
  const found = Object.fromEntries(names.map((name) => [name, colour(name)]));
  found.ramp = document.documentElement.dataset.theme === "dark" ? NIGHT : RAMP;
  return found;
}

// Where an error lies between the smallest and the largest of its run, on a logarithmic scale.
function strength(value, range) {
  if (Number.isNaN(value)) return 1;
  return Math.min(1, Math.max(0, (Math.log10(value) - range.low) / (range.high - range.low)));
}

function shade(part, ramp) {
  const place = part * (ramp.length - 1), low = Math.min(ramp.length - 2, Math.floor(place));
  const mix = ramp[low].map((value, i) => Math.round(value + (ramp[low + 1][i] - value) * (place - low)));
  return { css: `rgb(${mix.join(",")})`, ink: 0.3 * mix[0] + 0.59 * mix[1] + 0.11 * mix[2] > 140 ? "#111" : "#fff" };
}

function errorColour(value, range, colours) {
  if (value === null || value === 0) return { css: colours.empty, ink: colours.ink };
  return shade(strength(value, range), colours.ramp);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "not finite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000 && size < 10000) return value.toFixed(0);
  return size >= 0.01 && size < 1000 ? value.toPrecision(3) : value.toExponential(2);
}
