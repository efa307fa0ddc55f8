// @ts-check
/**
 * Hosts as squares on a canvas: how full each is, by the height and the colour of its filling, and its state by a
 * mark. Only squares that look different from before are drawn again. Arrow keys choose one, Enter opens it.
 */

import { toneOf } from "./parts.js";

/** @typedef {"" | "down" | "disabled" | "warn"} Mark */

/**
 * What is shown, and how: read anew at every drawing, and nothing is kept of it, so that a drawing of ten thousand
 * squares leaves no garbage.
 * @template T
 * @typedef {object} Squares
 * @property {T[]} items
 * @property {number} size
 * @property {(item: T) => string} keyOf
 * @property {(item: T) => number} shareOf how full it is, from 0 to 1
 * @property {(item: T) => Mark} markOf
 */

const GAP = 3;
/** @type {Mark[]} */
const MARKS = ["", "down", "disabled", "warn"];
const TONES = ["good", "warn", "bad"];
/** @type {Record<string, string>} */
const colours = {};
const dark = matchMedia("(prefers-color-scheme: dark)");

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["soft", "line", "text", "accent", "good-fill", "warn-fill", "bad-fill", "panel"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

export class HostSquares extends HTMLElement {
  constructor() {
    super();
    /** @type {Squares<any>} */
    this.shown = { items: [], size: 20, keyOf: String, shareOf: () => 0, markOf: () => "" };
    this.perRow = 1;
    this.chosen = -1;
    /** What each place looks like, as a number, to know what to draw; -1: nothing is there yet. */
    this.drawn = new Int32Array(0);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.observer = new ResizeObserver(() => this.layOut());
    this.onScheme = () => this.layOut();
  }

  connectedCallback() {
    this.append(this.canvas);
    this.tabIndex = 0;
    this.addEventListener("pointermove", this);
    this.addEventListener("pointerleave", this);
    this.addEventListener("click", this);
    this.addEventListener("keydown", this);
    this.addEventListener("blur", this);
    dark.addEventListener("change", this.onScheme);
    this.observer.observe(this);
  }

  disconnectedCallback() {
    this.observer.disconnect();
    dark.removeEventListener("change", this.onScheme);
  }

  get content() {
    return this.shown;
  }

  set content(content) {
    const isOther = content.items.length !== this.shown.items.length || content.size !== this.shown.size;
    this.shown = content;
    if (isOther) this.layOut();
    else this.draw();
  }

  layOut() {
    readColours();
    this.drawn = new Int32Array(0);
    const width = this.clientWidth;
    if (width === 0) return;
    const { items, size } = this.shown;
    const step = size + GAP;
    this.perRow = Math.max(1, Math.floor((width + GAP) / step));
    const rows = Math.ceil(items.length / this.perRow);
    const ratio = devicePixelRatio || 1;
    const columns = Math.min(this.perRow, items.length);
    this.canvas.width = Math.max(1, columns * step * ratio);
    this.canvas.height = Math.max(1, rows * step * ratio);
    this.canvas.style.width = `${columns * step}px`;
    this.canvas.style.height = `${rows * step}px`;
    this.canvas.getContext("2d")?.scale(ratio, ratio);
    this.drawn = new Int32Array(items.length).fill(-1);
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const { items, size, shareOf, markOf } = this.shown;
    for (let place = 0; place < this.drawn.length; place++) {
      const share = shareOf(items[place]);
      const height = Math.round(Math.min(1, Math.max(0, share)) * size);
      const tone = TONES.indexOf(toneOf(share));
      const mark = MARKS.indexOf(markOf(items[place]));
      const looks = height * 64 + tone * 16 + mark * 2 + (place === this.chosen ? 1 : 0);
      if (this.drawn[place] === looks) continue;
      this.drawn[place] = looks;
      this.drawSquare(context, place, height, /** @type {string} */ (TONES[tone]), /** @type {Mark} */ (MARKS[mark]));
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} place
   * @param {number} height
   * @param {string} tone
   * @param {Mark} mark
   */
  drawSquare(context, place, height, tone, mark) {
    const { size } = this.shown;
    const x = (place % this.perRow) * (size + GAP) + 1;
    const y = Math.floor(place / this.perRow) * (size + GAP) + 1;
    context.clearRect(x - 1, y - 1, size + GAP, size + GAP);
    context.fillStyle = /** @type {string} */ (colours["soft"]);
    context.fillRect(x, y, size, size);
    context.fillStyle = /** @type {string} */ (colours[`${tone}-fill`]);
    context.fillRect(x, y + size - height, size, height);
    context.lineWidth = 1;
    context.strokeStyle = /** @type {string} */ (colours["line"]);
    if (mark === "down") {
      context.fillStyle = /** @type {string} */ (colours["panel"]);
      context.fillRect(x, y, size, size);
      context.strokeStyle = /** @type {string} */ (colours["bad-fill"]);
      context.lineWidth = size > 12 ? 2 : 1.5;
      line(context, x + size * 0.25, y + size * 0.25, x + size * 0.75, y + size * 0.75);
      line(context, x + size * 0.75, y + size * 0.25, x + size * 0.25, y + size * 0.75);
    } else if (mark === "disabled") {
      context.strokeStyle = /** @type {string} */ (colours["text"]);
      line(context, x, y + size, x + size, y);
      line(context, x, y + size / 2, x + size / 2, y);
      line(context, x + size / 2, y + size, x + size, y + size / 2);
    } else if (mark === "warn") {
      context.fillStyle = /** @type {string} */ (colours["text"]);
      context.beginPath();
      context.moveTo(x + size, y);
      context.lineTo(x + size, y + size / 2);
      context.lineTo(x + size / 2, y);
      context.fill();
    }
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (place === this.chosen) {
      context.strokeStyle = /** @type {string} */ (colours["accent"]);
      context.lineWidth = 2;
      context.strokeRect(x, y, size, size);
    }
  }

  /** @param {Event} event */
  handleEvent(event) {
    switch (event.type) {
      case "pointermove":
        this.choose(this.placeAt(/** @type {PointerEvent} */ (event)));
        break;
      case "pointerleave":
      case "blur":
        this.choose(-1);
        break;
      case "click":
        this.open(this.placeAt(/** @type {PointerEvent} */ (event)));
        break;
      case "keydown":
        this.onKey(/** @type {KeyboardEvent} */ (event));
    }
  }

  /** @param {PointerEvent} event */
  placeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { items, size } = this.shown;
    const column = Math.floor((event.clientX - box.left) / (size + GAP));
    const row = Math.floor((event.clientY - box.top) / (size + GAP));
    const place = row * this.perRow + column;
    return column >= 0 && column < this.perRow && row >= 0 && place < items.length ? place : -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.perRow, ArrowDown: this.perRow };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (step !== undefined) {
      const place = this.chosen < 0 ? 0 : this.chosen + step;
      if (place >= 0 && place < this.shown.items.length) this.choose(place);
    } else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.shown.items.length - 1);
    else if (event.key === "Enter" && this.chosen >= 0) this.open(this.chosen);
    else return;
    event.preventDefault();
  }

  /** @param {number} place */
  choose(place) {
    if (place === this.chosen) return;
    this.chosen = place;
    this.draw();
    this.tell("point", place);
  }

  /** @param {number} place */
  open(place) {
    if (place in this.shown.items) this.tell("open", place);
  }

  /**
   * @param {string} what
   * @param {number} place
   */
  tell(what, place) {
    const { items, keyOf } = this.shown;
    this.dispatchEvent(new CustomEvent(what, { detail: place in items ? keyOf(items[place]) : null }));
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

customElements.define("host-squares", HostSquares);
