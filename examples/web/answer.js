// From a recording in text and an exported network to an answer, in a browser. docs/howto/export.md describes the inputs.
"use strict";

const show = (id, text) => { document.getElementById(id).textContent = text; };
let session = null, about = null, recording = null;

// What event2vec wrote into the file, as JSON: the entry "event2vec" of metadata_props, field 14 of an ONNX model.
function readDescription(bytes) {
  let place = 0;
  const text = new TextDecoder();
  const number = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[place++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
    return value;
  };
  const part = () => { const length = number(); place += length; return [place - length, place]; };
  while (place < bytes.length) {
    const key = number();
    if ((key & 7) === 0) { number(); continue; }
    if ((key & 7) !== 2) throw new Error("this is not an ONNX file");
    const [start, stop] = part();
    if (key >> 3 !== 14) continue;
    place = start;
    const entry = {};
    while (place < stop) { const field = number() >> 3; entry[field] = text.decode(bytes.subarray(...part())); }
    if (entry[1] === "event2vec") return JSON.parse(entry[2]);
  }
  throw new Error("event2vec export did not write this file");
}

// Lines of t,x,y,p in order of time, as event2vec convert writes them; the first line names the sensor.
function readEvents(text) {
  const sensor = /^# sensor (\d+)x(\d+)/.exec(text);
  if (!sensor) throw new Error("the first line must name the sensor, as event2vec convert writes it");
  const rows = text.split("\n").slice(2).filter(Boolean).map((line) => line.split(",").map(Number));
  if (!rows.length || rows.some((row) => row.length !== 4 || row.some(Number.isNaN))) throw new Error("expected lines of t,x,y,p");
  return { width: +sensor[1], height: +sensor[2], rows };
}

// As many events as the network reads, each equally likely, in order of time.
function draw(rows, length) {
  if (rows.length <= length) return rows;
  const order = rows.map((_, index) => index);
  for (let place = 0; place < length; place++) {
    const other = place + Math.floor(Math.random() * (order.length - place));
    [order[place], order[other]] = [order[other], order[place]];
  }
  return order.slice(0, length).sort((one, other) => one - other).map((index) => rows[index]);
}

async function answer() {
  const { sensor } = about.model, rows = draw(recording.rows, about.sampling.length), shape = [1, rows.length];
  const scale = (from, to) => (to - 1) / Math.max(from - 1, 1);  // corner to corner
  const wide = scale(recording.width, sensor.width), high = scale(recording.height, sensor.height);
  const tensor = (type, values) => new ort.Tensor(type, values, shape);
  const began = performance.now();
  const { logits } = await session.run({
    x: tensor("float32", Float32Array.from(rows, (row) => row[1] * wide)),
    y: tensor("float32", Float32Array.from(rows, (row) => row[2] * high)),
    t: tensor("int64", BigInt64Array.from(rows, (row) => BigInt(row[0]))),
    p: tensor("bool", Uint8Array.from(rows, (row) => row[3])),
    rho: tensor("float32", new Float32Array(rows.length).fill(1)),
    valid: tensor("bool", new Uint8Array(rows.length).fill(1)),
  });
  const took = performance.now() - began;
  const raised = Array.from(logits.data, (logit) => Math.exp((logit - Math.max(...logits.data)) / about.temperature));
  const total = raised.reduce((sum, value) => sum + value);
  const scores = about.class_names.map((name, label) => [name, raised[label] / total]).sort((a, b) => b[1] - a[1]);
  show("answer", `${scores[0][0]} (${(100 * scores[0][1]).toFixed(1)} %), from ${rows.length} of ${recording.rows.length} events in ${took.toFixed(0)} ms`);
  drawScores(scores.slice(0, 10));
}

function drawEvents() {
  const canvas = document.getElementById("events"), paint = canvas.getContext("2d");
  [canvas.width, canvas.height] = [recording.width, recording.height];
  for (const [, x, y, p] of recording.rows) { paint.fillStyle = p ? "#f64" : "#48f"; paint.fillRect(x, y, 1, 1); }
}

function drawScores(scores) {
  document.getElementById("scores").replaceChildren(...scores.map(([name, score]) => {
    const line = document.createElement("div"), label = document.createElement("span"), bar = document.createElement("i");
    label.textContent = name;
    bar.style.width = `${8 * score}rem`;
    line.append(label, bar, `${(100 * score).toFixed(1)} %`);
    return line;
  }));
}

async function take(work) {
  try {
    await work();
    if (session && recording) await answer();
  } catch (error) {
    show("answer", `This did not work: ${error.message}`);
  }
}

document.getElementById("model").onchange = (event) => take(async () => {
  const bytes = new Uint8Array(await event.target.files[0].arrayBuffer());
  const found = readDescription(bytes);
  if (found.sampling.method !== "random") throw new Error("this page draws random events, and the network reads clusters");
  session = await ort.InferenceSession.create(bytes);
  about = found;
});

document.getElementById("recording").onchange = (event) => take(async () => {
  recording = readEvents(await event.target.files[0].text());
  drawEvents();
});
