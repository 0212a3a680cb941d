// The live page: events as they come, the newest answer, the scores of the last seconds. Uses player.js.
"use strict";

const HISTORY = 10; // seconds of scores
const FADE = 0.08; // seconds in which an event fades to a third
const PIECE = 1 << 18; // bytes of a dropped recording that are sent at once
const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
const part = (id) => document.getElementById(id);
const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const live = { names: [], rows: [], history: [], paused: false, waiting: null, frames: 0, drawn: 0 };

function connect() {
  const socket = new WebSocket(`${address}/live`);
  socket.binaryType = "arraybuffer";
  live.socket = socket;
  socket.onmessage = ({ data }) => (typeof data === "string" ? greet(JSON.parse(data)) : receive(data));
  socket.onclose = () => {
    part("answer").textContent = "no connection";
    part("answer").className = "nothing";
    setTimeout(connect, 1000);
  };
}

function tell(wish) {
  if (live.socket.readyState === WebSocket.OPEN) live.socket.send(JSON.stringify(wish));
}

function greet(hello) {
  live.names = hello.names;
  live.largest = hello.largest;
  part("about").textContent = hello.about;
  part("window").value = hello.window;
  part("attention").disabled = !hello.attention;
  const canvas = part("events");
  canvas.width = hello.width;
  canvas.height = hello.height;
  canvas.style.aspectRatio = `${hello.width} / ${hello.height}`;
  live.light = new Float32Array(hello.width * hello.height);
  live.rising = new Uint8Array(hello.width * hello.height);
  live.rows = hello.names.map((name) => makeRow(name, "canvas"));
  part("scores").replaceChildren(...live.rows.map((row) => row.root));
  live.history = [];
  tell({ attention: part("attention").checked });
}

// A name, a picture of its score and the score as a number.
function makeRow(name, kind) {
  const root = Object.assign(document.createElement("div"), { className: "score" });
  const label = Object.assign(document.createElement("span"), { textContent: name, title: name });
  const picture = document.createElement(kind);
  const value = document.createElement("output");
  root.append(label, picture, value);
  return { root, picture, value };
}

// Only the newest frame waits to be drawn; when it has been, the server may send the next.
function receive(data) {
  const first = live.waiting === null;
  live.waiting = data;
  if (first && !live.paused) requestAnimationFrame(drawNewest);
}

function drawNewest() {
  const data = live.waiting;
  live.waiting = null;
  if (data === null) return;
  const length = new Uint32Array(data, 0, 1)[0];
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  drawEvents(head, data, 4 + length);
  if (head.answer) showAnswer(head.answer);
  if (document.activeElement !== part("window")) part("window").value = head.window;
  document.body.dataset.frames = ++live.frames;
  tell({ drawn: head.frame });
}

function drawEvents({ count, attention }, data, start) {
  const x = new Uint16Array(data, start, count), y = new Uint16Array(data, start + 2 * count, count);
  const p = new Uint8Array(data, start + 4 * count, count), seen = new Uint8Array(data, start + 5 * count, count);
  const canvas = part("events"), { light, rising } = live;
  const now = performance.now(), fade = attention ? 0 : Math.exp(-(now - (live.before ?? now)) / 1000 / FADE);
  live.before = now;
  for (let place = 0; place < light.length; place++) light[place] *= fade;
  for (let index = 0; index < count; index++) {
    const place = y[index] * canvas.width + x[index];
    light[place] = attention ? DIMMEST + ((1 - DIMMEST) * seen[index]) / 255 : 1;
    rising[place] = p[index];
  }
  const context = canvas.getContext("2d");
  const picture = context.createImageData(canvas.width, canvas.height);
  for (let place = 0; place < light.length; place++) {
    const colour = rising[place] ? RISING : FALLING;
    for (let channel = 0; channel < 3; channel++) picture.data[4 * place + channel] = 17 + (colour[channel] - 17) * light[place];
    picture.data[4 * place + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
  live.drawn += count;
  document.body.dataset.drawn = live.drawn;
}

function showAnswer(answer) {
  const title = part("answer");
  title.textContent = answer.name;
  title.className = answer.label === null ? "nothing" : "";
  part("confidence").textContent = answer.label === null ? "" : `${number(100 * answer.confidence)} %`;
  part("rate").textContent = `${number(answer.events_per_second)} a second`;
  part("count").textContent = number(answer.events);
  part("latency").textContent = `median ${number(answer.latency_p50_ms, 1)} ms, 95th percentile ${number(answer.latency_p95_ms, 1)} ms`;
  for (const [stage, taken] of Object.entries(answer.stages_ms))
    document.querySelector(`[data-stage=${stage}]`).textContent = `${number(taken, 1)} ms`;
  part("skipped").textContent = number(answer.skipped);
  part("far").textContent = answer.remarks.length ? `Far from the recordings of the training: ${answer.remarks.join("; ")}.` : "";
  for (const notice of answer.notices) {
    part("notice").hidden = false;
    part("notice").textContent = notice;
  }
  live.history.push({ when: performance.now() / 1000, scores: live.names.map((name) => answer.scores[name]) });
  drawScores(answer.label);
}

function drawScores(best) {
  const now = performance.now() / 1000;
  live.history = live.history.filter(({ when }) => now - when < HISTORY);
  const filled = getComputedStyle(document.documentElement).getPropertyValue("--falling");
  live.rows.forEach(({ root, picture, value }, label) => {
    picture.width = 200;
    picture.height = 20;
    const context = picture.getContext("2d");
    context.fillStyle = filled;
    live.history.forEach(({ when, scores }, place) => {
      const next = live.history[place + 1]?.when ?? now;
      const [from, to] = [when, next].map((time) => Math.ceil(200 * (1 - (now - time) / HISTORY)));
      context.fillRect(from, 20 * (1 - scores[label]), Math.max(to - from, 1), 20 * scores[label]);
    });
    value.textContent = `${number(100 * live.history.at(-1).scores[label])} %`;
    root.classList.toggle("best", label === best);
  });
}

part("pause").onclick = () => {
  live.paused = !live.paused;
  part("pause").textContent = live.paused ? "Resume" : "Pause";
  if (!live.paused) requestAnimationFrame(drawNewest);
};
part("attention").onchange = () => tell({ attention: part("attention").checked });
part("window").onchange = () => {
  tell({ window: Number(part("window").value) });
  part("window").blur();
};
part("dismiss").onclick = () => (part("dropped").hidden = true);
part("file").onchange = () => part("file").files.length && ask(part("file").files[0]);
document.ondragover = (event) => event.preventDefault() || document.body.classList.add("dragging");
document.ondragleave = () => document.body.classList.remove("dragging");
document.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  if (event.dataTransfer.files.length) ask(event.dataTransfer.files[0]);
};

// A recording goes to the server piece by piece, and comes back as what the player shows, with its scores.
function ask(file) {
  part("dropped").hidden = false;
  part("dropped-name").textContent = file.name;
  part("dropped-scores").replaceChildren();
  part("dropped-player").replaceChildren();
  const say = (text) => (part("dropped-answer").textContent = text);
  if (file.size > live.largest) return say(`It has ${number(file.size)} bytes; at most ${number(live.largest)} are answered here.`);
  say("being read ...");
  const socket = new WebSocket(`${address}/recording`);
  let told = false;
  socket.onopen = async () => {
    socket.send(JSON.stringify({ name: file.name, size: file.size }));
    for (let start = 0; start < file.size; start += PIECE) socket.send(await file.slice(start, start + PIECE).arrayBuffer());
  };
  socket.onmessage = ({ data }) => {
    told = true;
    const found = JSON.parse(data);
    if (found.error) return say(found.error);
    say(found.verdict);
    showDropped(found);
  };
  socket.onclose = () => told || say("The server did not answer.");
}

function showDropped({ scores, clip }) {
  const rows = Object.entries(scores).map(([name, score]) => {
    const row = makeRow(name, "div");
    row.picture.className = "bar";
    const bar = document.createElement("i");
    bar.style.width = `${100 * score}%`;
    row.picture.append(bar);
    row.value.textContent = `${number(100 * score, 1)} %`;
    return row.root;
  });
  part("dropped-scores").replaceChildren(...rows);
  part("dropped-player").replaceChildren(part("player-parts").content.cloneNode(true));
  new Player(part("player"), [clip]);
  part("dropped").scrollIntoView({ behavior: "smooth" });
}

connect();
