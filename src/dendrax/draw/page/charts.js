// Curves over time: the energy, and the trace of one vertex.

const RUN_COLOURS = ["#3b7ddd", "#e07b1a"];

function prepare(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, box.width, box.height);
  return { pen, width: box.width, height: box.height };
}

// series: [{ points: [[t, value]], colour, name }]; null is not known, NaN is not finite. What may be
// negative is `signed`.
function drawCurves(canvas, series, { last, time, title, colours, signed = false }) {
  const { pen, width, height } = prepare(canvas);
  const left = 60, right = width - 8, top = 14, bottom = height - 4;
  const axis = findAxis(series.flatMap(({ points }) => points.map(([, value]) => value)), signed);
  const x = (t) => left + (right - left) * (last ? t / last : 0);
  const y = (value) => bottom - (bottom - top) * axis.part(value);
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  pen.fillText(axis?.linear ? `${title} (linear axis)` : title, left, 6);
  if (axis) {
    pen.textAlign = "right";
    pen.fillText(number(axis.high), left - 6, top + 2);
    pen.fillText(number(axis.low), left - 6, bottom - 6);
    if (axis.linear && axis.low < 0 && axis.high > 0) drawLine(pen, colours.line, 1, [left, y(0)], [right, y(0)]);
    const shown = (point) => point !== undefined && axis.shows(point[1]);
    for (const { points, colour } of series) drawCurve(pen, points, shown, x, y, colour);
  } else reasons(series).forEach((text, i) => pen.fillText(text, left + 6, (top + bottom) / 2 + 12 * i));
  drawKey(pen, series, axis, right);
  const now = x(Math.min(time, last));
  drawLine(pen, colours.mark, 1.5, [now, top - 4], [now, bottom]);
  return { left, right };
}

// The axis: which values it shows, and where between 0 and 1; null if there is nothing to show. It is
// logarithmic and leaves zeros out, except for what is signed and not positive everywhere.
function findAxis(values, signed) {
  if (!values.some(isSeen)) return null;
  const finite = values.filter((value) => Number.isFinite(value));
  const linear = signed && finite.some((value) => value <= 0);
  const scale = linear ? (value) => value : Math.log10, back = linear ? scale : (place) => 10 ** place;
  const places = (linear ? finite : finite.filter((value) => value > 0)).map(scale);
  let high = highest(places), low = linear ? lowest(places) : Math.max(lowest(places), high - 16);
  const room = linear ? 0.1 * Math.max(-low, high) : 0.2; // what hardly changes is a flat line
  if (high - low < room) { low -= room / 2; high += room / 2; }
  const shows = (value) => Number.isFinite(value) && (linear || (value > 0 && scale(value) >= low - 1e-9));
  return { linear, shows, low: back(low), high: back(high), part: (value) => (scale(value) - low) / (high - low) };
}

function isSeen(value) {
  return Number.isFinite(value) && value !== 0;
}

// Why a curve is not there.
function reason(points) {
  const known = points.filter(([, value]) => value !== null);
  if (!known.length) return "not computed";
  const finite = known.filter(([, value]) => Number.isFinite(value)).length;
  if (finite === known.length) return "exactly zero at all times";
  return finite ? "zero or not finite at all times" : "not finite at any time";
}

function reasons(series) {
  const found = [...new Set(series.map(({ points }) => reason(points)))];
  return found.length > 1 ? series.map(({ name, points }) => `${name}: ${reason(points)}`) : found;
}

function drawLine(pen, colour, width, from, to) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

// A line through the points that are shown; one that stands alone is a dot.
function drawCurve(pen, points, shown, x, y, colour) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.8;
  pen.beginPath();
  points.forEach((point, i) => {
    if (!shown(point)) return;
    const place = [x(point[0]), y(point[1])];
    if (shown(points[i - 1])) pen.lineTo(...place); else pen.moveTo(...place);
    if (!shown(points[i - 1]) && !shown(points[i + 1])) pen.fillRect(place[0] - 3, place[1] - 3, 6, 6);
  });
  pen.stroke();
}

// The names of the curves; beside other curves, why one is missing.
function drawKey(pen, series, axis, right) {
  pen.textAlign = "right";
  let end = right;
  for (const { name, colour, points } of [...series].reverse()) {
    if (!name) continue;
    const missing = axis && !points.some(([, value]) => isSeen(value));
    const text = missing ? `${name}: ${reason(points)}` : name;
    pen.fillStyle = colour;
    pen.fillText(text, end, 6);
    end -= pen.measureText(text).width + 12;
  }
}

function drawLegend(canvas, ranges, colours) {
  const { pen, width, height } = prepare(canvas);
  const left = 4, wide = width - 8;
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = colours.quiet;
  pen.textAlign = "left";
  pen.fillText("error (root mean square)", left, 0, wide);
  ranges.forEach((range, i) => {
    const y = 14 + i * Math.min(34, (height - 14) / ranges.length);
    for (let px = 0; px < wide; px++) {
      pen.fillStyle = shade(px / wide, colours.ramp).css;
      pen.fillRect(left + px, y, 1.2, 8);
    }
    pen.fillStyle = colours.quiet;
    pen.textAlign = "left";
    pen.fillText(number(10 ** range.low), left, y + 10);
    pen.textAlign = "right";
    pen.fillText(number(10 ** range.high), left + wide, y + 10);
  });
}
