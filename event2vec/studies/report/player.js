// The event player: drag through time, both polarities in colour, attention as brightness.
"use strict";

const RISING = [255, 150, 50], FALLING = [80, 160, 255], BACKGROUND = "#111";
const DIMMEST = 0.22; // an event without attention can still be seen
const SECONDS = 6; // that a recording takes when it is played

function column(text, Type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Type(bytes.buffer);
}

class Player {
  constructor(root, clips) {
    this.root = root;
    this.clips = clips;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    for (const [number, clip] of clips.entries()) this.part("clip").add(new Option(clip.title, number));
    this.part("clip").onchange = () => this.open(Number(this.part("clip").value));
    this.part("attention").onchange = () => this.draw();
    this.part("window").oninput = () => this.draw();
    this.part("time").oninput = () => this.stop() || this.draw();
    this.part("play").onclick = () => (this.playing ? this.stop() : this.play());
    const strip = this.part("strip");
    const seek = (event) => {
      const box = strip.getBoundingClientRect();
      this.part("time").value = (1000 * (event.clientX - box.left)) / box.width;
      this.stop();
      this.draw();
    };
    strip.onpointerdown = (event) => strip.setPointerCapture(event.pointerId) || seek(event);
    strip.onpointermove = (event) => event.buttons && seek(event);
    this.open(0);
  }

  open(number) {
    const clip = this.clips[number];
    if (!clip.x) {
      clip.x = column(clip.columns.x, Uint16Array);
      clip.y = column(clip.columns.y, Uint16Array);
      clip.t = column(clip.columns.t, Float64Array);
      clip.p = column(clip.columns.p, Uint8Array);
      clip.seen = clip.columns.attention.map((text) => column(text, Uint8Array));
    }
    this.clip = clip;
    const chosen = this.part("attention");
    const kept = chosen.value;
    chosen.replaceChildren(new Option("off", "off"));
    clip.seen.forEach((_, block) => chosen.add(new Option(`block ${block + 1}`, block)));
    chosen.value = [...chosen.options].some((option) => option.value === kept) ? kept : clip.seen.length - 1;
    if (!clip.seen.length) chosen.value = "off";
    const canvas = this.part("canvas");
    canvas.width = clip.width;
    canvas.height = clip.height;
    canvas.style.aspectRatio = `${clip.width} / ${clip.height}`;
    this.part("strip").height = Math.min(clip.width, 120); // a row for each x, as far as they can be told apart
    this.part("verdict").textContent = clip.verdict;
    this.part("verdict").classList.toggle("wrong", !clip.right);
    this.part("time").value = 300;
    this.draw();
  }

  colour(index) {
    const chosen = this.part("attention").value;
    const light = chosen === "off" ? 1 : DIMMEST + ((1 - DIMMEST) * this.clip.seen[chosen][index]) / 255;
    const [red, green, blue] = this.clip.p[index] ? RISING : FALLING;
    return [red * light, green * light, blue * light];
  }

  draw() {
    const clip = this.clip;
    const now = (this.part("time").value / 1000) * clip.duration;
    const length = (this.part("window").value / 1000) * clip.duration;
    this.drawPicture(now - length, now);
    this.drawStrip(now - length, now);
    this.part("clock").textContent = `${(now / 1000).toFixed(1)} of ${(clip.duration / 1000).toFixed(1)} ms`;
    this.part("length").textContent = `${(length / 1000).toFixed(1)} ms`;
  }

  drawPicture(from, to) {
    const { width, height, x, y, t } = this.clip;
    const context = this.part("canvas").getContext("2d", { willReadFrequently: true });
    context.fillStyle = BACKGROUND;
    context.fillRect(0, 0, width, height);
    const picture = context.getImageData(0, 0, width, height);
    let shown = 0;
    for (let index = 0; index < t.length; index++) {
      if (t[index] < from || t[index] > to) continue;
      const place = 4 * (y[index] * width + x[index]);
      const light = this.colour(index);
      for (let part = 0; part < 3; part++) picture.data[place + part] = light[part];
      shown++;
    }
    context.putImageData(picture, 0, 0);
    this.root.dataset.shown = shown;
    const drawn = this.clip.recorded > t.length ? ` (1 in ${(this.clip.recorded / t.length).toFixed(1)})` : "";
    this.part("count").textContent = `${shown.toLocaleString("en")} events${drawn}`;
  }

  drawStrip(from, to) {
    const { width, duration, x, t } = this.clip;
    const canvas = this.part("strip");
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = BACKGROUND;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const scale = canvas.width / Math.max(duration, 1);
    context.fillStyle = "#333";
    context.fillRect(from * scale, 0, (to - from) * scale, canvas.height);
    const picture = context.getImageData(0, 0, canvas.width, canvas.height);
    for (let index = 0; index < t.length; index++) {
      const across = Math.min(Math.floor(t[index] * scale), canvas.width - 1);
      const down = Math.floor(((x[index] + 0.5) / width) * canvas.height);
      const light = this.colour(index);
      for (let part = 0; part < 3; part++) picture.data[4 * (down * canvas.width + across) + part] = light[part];
    }
    context.putImageData(picture, 0, 0);
    context.fillStyle = "#fff";
    context.fillRect(Math.min(to * scale, canvas.width - 1), 0, 1, canvas.height);
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
      place += (now - before) / SECONDS;
      before = now;
      time.value = Math.min(place, 1000);
      this.draw();
      if (place >= 1000) this.stop();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  stop() {
    this.playing = false;
    this.part("play").textContent = "Play";
  }
}

new Player(document.getElementById("player"), JSON.parse(document.getElementById("clips").textContent));
