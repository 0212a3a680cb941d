// The event player: drag through time, both polarities in colour, attention as brightness.
"use strict";

const RISING = [255, 150, 50], FALLING = [80, 160, 255], BACKGROUND = "#111";
const DIMMEST = 0.22; // an event without attention is still visible
const SECONDS = 6; // a shorter recording is played in slow motion that lasts this long
const WINDOW = 50; // milliseconds of events that are shown at first, or less
const LONGEST = 5000; // milliseconds of events that can be shown at once
const LONG = 10_000; // milliseconds from which a recording's clock shows seconds
const SPEEDS = [0.01, 0.1, 1, 10, 100]; // times the recorded speed
const colourOf = (label) => `hsl(${Math.round(210 + 137.508 * label) % 360} 60% ${label % 2 ? 72 : 62}%)`; // neighbours differ
const NO_ANSWER = "#555";

function column(text, Type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Type(bytes.buffer);
}

// The first position in ascending times that is not before `time`.
function position(times, time) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Player {
  constructor(root, clips) {
    this.root = root;
    this.clips = clips;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    for (const [number, clip] of clips.entries()) this.part("clip").add(new Option(clip.title, number));
    this.part("speed").add(new Option("fitting", ""));
    for (const speed of SPEEDS) this.part("speed").add(new Option(speed === 1 ? "as recorded" : `${speed} x`, speed));
    this.part("clip").onchange = () => this.open(Number(this.part("clip").value));
    this.part("attention").onchange = () => this.draw();
    this.part("window").oninput = () => this.draw();
    this.part("time").oninput = () => this.stop() || this.draw();
    this.part("play").onclick = () => (this.playing ? this.stop() : this.play());
    for (const name of ["strip", "answers", "truth"]) this.seekOn(this.part(name));
    this.open(0);
  }

  // Dragging over all of the recording moves the time.
  seekOn(strip) {
    const seek = (event) => {
      const box = strip.getBoundingClientRect();
      this.part("time").value = (1000 * (event.clientX - box.left)) / box.width;
      this.stop();
      this.draw();
    };
    strip.onpointerdown = (event) => strip.setPointerCapture(event.pointerId) || seek(event);
    strip.onpointermove = (event) => event.buttons && seek(event);
  }

  open(number) {
    const clip = this.clips[number];
    if (!clip.x) {
      clip.x = column(clip.columns.x, Uint16Array);
      clip.y = column(clip.columns.y, Uint16Array);
      clip.t = column(clip.columns.t, Float64Array);
      clip.p = column(clip.columns.p, Uint8Array);
      clip.seen = clip.columns.attention.map((text) => column(text, Uint8Array));
      clip.strips = {};
    }
    this.clip = clip;
    this.offerAttention(clip);
    const canvas = this.part("canvas");
    canvas.width = clip.width;
    canvas.height = clip.height;
    canvas.style.aspectRatio = `${clip.width} / ${clip.height}`;
    this.part("strip").height = Math.min(clip.width, 120); // a row for each x, up to what is still visible
    this.part("verdict").textContent = clip.verdict;
    this.part("verdict").classList.toggle("wrong", !clip.right);
    this.offerAnswers(clip);
    const shown = clip.t.length.toLocaleString("en"), recorded = clip.recorded.toLocaleString("en");
    const thinned = clip.recorded > clip.t.length;
    this.part("thinned").textContent = thinned ? `Thinned: ${shown} of ${recorded} events, picked at random.` : "";
    this.part("time").value = 300;
    const window = this.part("window");
    window.min = Math.min(5, this.shareOf(WINDOW));
    window.max = Math.min(1000, this.shareOf(LONGEST));
    if (number === 0) window.value = Math.min(80, this.shareOf(WINDOW)); // later ones keep what was chosen
    this.draw();
  }

  offerAttention(clip) {
    const chosen = this.part("attention");
    const kept = chosen.value;
    chosen.replaceChildren(new Option("off", "off"));
    clip.seen.forEach((_, block) => chosen.add(new Option(`block ${block + 1}`, block)));
    chosen.value = [...chosen.options].some((option) => option.value === kept) ? kept : clip.seen.length - 1;
    if (!clip.seen.length) chosen.value = "off";
    chosen.parentElement.hidden = !clip.seen.length;
  }

  // A long recording: what was answered when, in the colour of the class, and what its labels say.
  offerAnswers(clip) {
    this.part("tracks").hidden = !clip.answers.length;
    this.part("labelled").hidden = this.part("truth").hidden = !clip.truth.length;
    for (const name of ["answers", "truth"]) {
      const spans = clip[name].map((part) => {
        const span = Object.assign(document.createElement("span"), { textContent: part.name });
        span.style.left = `${(100 * part.start) / clip.duration}%`;
        span.style.width = `${(100 * (part.stop - part.start)) / clip.duration}%`;
        span.style.background = part.label === null ? NO_ANSWER : colourOf(part.label);
        return span;
      });
      this.part(name).replaceChildren(...spans, document.createElement("i"));
    }
  }

  // The answer at this time, and whether it is that of the labels.
  drawAnswer(now) {
    const { answers, truth, duration, verdict } = this.clip;
    if (!answers.length) return;
    const at = (parts) => parts.find(({ start, stop }) => start <= now && now <= stop);
    const said = at(answers), known = at(truth);
    const sure = said?.confidence == null ? "" : ` (${Math.round(100 * said.confidence)} %)`;
    const wrong = known && said?.label !== known.label;
    this.part("verdict").textContent = said ? `${said.name}${sure}${wrong ? `, label ${known.name}` : ""}` : verdict;
    this.part("verdict").title = verdict;
    this.part("verdict").classList.toggle("wrong", Boolean(wrong));
    for (const mark of this.root.querySelectorAll(".track i")) mark.style.left = `calc(${(100 * now) / duration}% - 1px)`;
  }

  // Milliseconds as thousandths of the recording, the unit of both sliders.
  shareOf(milliseconds) {
    return (1e6 * milliseconds) / Math.max(this.clip.duration, 1);
  }

  draw() {
    const clip = this.clip;
    const now = (this.part("time").value / 1000) * clip.duration;
    const length = (this.part("window").value / 1000) * clip.duration;
    const chosen = this.part("attention").value;
    this.drawPicture(now - length, now, clip.seen[chosen]);
    this.drawStrip(now - length, now, chosen);
    this.drawAnswer(now);
    const [unit, size, digits] = clip.duration < 1000 * LONG ? ["ms", 1e3, 1] : ["s", 1e6, 2];
    this.part("clock").textContent = `${(now / size).toFixed(digits)} of ${(clip.duration / size).toFixed(digits)} ${unit}`;
    this.part("length").textContent = `${(length / 1000).toFixed(1)} ms`;
  }

  // Colour one pixel as event `index` of the clip.
  light(data, place, index, seen) {
    const light = seen ? DIMMEST + ((1 - DIMMEST) * seen[index]) / 255 : 1;
    const colour = this.clip.p[index] ? RISING : FALLING;
    for (let part = 0; part < 3; part++) data[place + part] = colour[part] * light;
  }

  drawPicture(from, to, seen) {
    const { width, height, x, y, t } = this.clip;
    const context = this.part("canvas").getContext("2d", { willReadFrequently: true });
    context.fillStyle = BACKGROUND;
    context.fillRect(0, 0, width, height);
    const picture = context.getImageData(0, 0, width, height);
    const first = position(t, from);
    let index = first;
    for (; index < t.length && t[index] <= to; index++)
      this.light(picture.data, 4 * (y[index] * width + x[index]), index, seen);
    context.putImageData(picture, 0, 0);
    this.root.dataset.shown = index - first;
    const drawn = this.clip.recorded > t.length ? ` (1 in ${(this.clip.recorded / t.length).toFixed(1)})` : "";
    this.part("count").textContent = `${(index - first).toLocaleString("en")} events${drawn}`;
  }

  drawStrip(from, to, chosen) {
    const canvas = this.part("strip");
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const strip = (this.clip.strips[chosen] ??= this.makeStrip(canvas, chosen));
    context.fillStyle = BACKGROUND;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const scale = canvas.width / Math.max(this.clip.duration, 1);
    context.fillStyle = "#333";
    context.fillRect(from * scale, 0, (to - from) * scale, canvas.height);
    context.drawImage(strip, 0, 0);
    context.fillStyle = "#fff";
    context.fillRect(Math.min(to * scale, canvas.width - 1), 0, 1, canvas.height);
  }

  // All events, time across and x down, on nothing: made once, however often the time moves.
  makeStrip({ width, height }, chosen) {
    const strip = Object.assign(document.createElement("canvas"), { width, height });
    const context = strip.getContext("2d");
    const picture = context.createImageData(width, height);
    const { x, t, seen } = this.clip;
    const scale = width / Math.max(this.clip.duration, 1);
    for (let index = 0; index < t.length; index++) {
      const across = Math.min(Math.floor(t[index] * scale), width - 1);
      const place = 4 * (Math.floor(((x[index] + 0.5) / this.clip.width) * height) * width + across);
      this.light(picture.data, place, index, seen[chosen]);
      picture.data[place + 3] = 255;
    }
    context.putImageData(picture, 0, 0);
    return strip;
  }

  play() {
    const time = this.part("time");
    if (Number(time.value) >= 1000) time.value = 0;
    this.playing = true;
    this.part("play").textContent = "Pause";
    let before = performance.now();
    let place = Number(time.value);
    const step = (now) => {
      if (!this.playing) return;
      const fitting = Math.min(1, this.clip.duration / (SECONDS * 1e6));
      place += this.shareOf((now - before) * Number(this.part("speed").value || fitting));
      before = now;
      time.value = Math.min(place, 1000);
      this.draw();
      if (place >= 1000 || !this.clip.duration) this.stop();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  stop() {
    this.playing = false;
    this.part("play").textContent = "Play";
  }
}
