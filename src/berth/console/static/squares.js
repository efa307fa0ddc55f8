// @ts-check
/**
 * Hosts as squares on a canvas: how full each is, by the height and the colour of its filling, and its state by a
 * mark. Only squares that look different from before are drawn again. Arrow keys choose one, Enter opens it.
 */

import { toneOf } from "./parts.js";

/** @typedef {{ key: string, share: number, mark: "" | "down" | "disabled" | "warn" }} Square */

const GAP = 3;
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
    /** @type {Square[]} */
    this.squares = [];
    this.size = 20;
    this.perRow = 1;
    this.chosen = -1;
    /** What each place shows, to know what to draw. */
    /** @type {string[]} */
    this.drawn = [];
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

  /** @param {{ squares: Square[], size: number }} content */
  set content({ squares, size }) {
    const isOther = squares.length !== this.squares.length || size !== this.size;
    this.squares = squares;
    this.size = size;
    if (isOther) this.layOut();
    else this.draw();
  }

  layOut() {
    readColours();
    const width = this.clientWidth;
    if (width === 0) return;
    const step = this.size + GAP;
    this.perRow = Math.max(1, Math.floor((width + GAP) / step));
    const rows = Math.ceil(this.squares.length / this.perRow);
    const ratio = devicePixelRatio || 1;
    const columns = Math.min(this.perRow, this.squares.length);
    this.canvas.width = Math.max(1, columns * step * ratio);
    this.canvas.height = Math.max(1, rows * step * ratio);
    this.canvas.style.width = `${columns * step}px`;
    this.canvas.style.height = `${rows * step}px`;
    this.canvas.getContext("2d")?.scale(ratio, ratio);
    this.drawn = [];
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    for (const [place, square] of this.squares.entries()) {
      const height = Math.round(Math.min(1, Math.max(0, square.share)) * this.size);
      const tone = toneOf(square.share);
      const looks = `${height} ${tone} ${square.mark} ${place === this.chosen}`;
      if (this.drawn[place] === looks) continue;
      this.drawn[place] = looks;
      this.drawSquare(context, place, square, height, tone);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} place
   * @param {Square} square
   * @param {number} height
   * @param {string} tone
   */
  drawSquare(context, place, square, height, tone) {
    const { size } = this;
    const x = (place % this.perRow) * (size + GAP) + 1;
    const y = Math.floor(place / this.perRow) * (size + GAP) + 1;
    context.clearRect(x - 1, y - 1, size + GAP, size + GAP);
    context.fillStyle = /** @type {string} */ (colours["soft"]);
    context.fillRect(x, y, size, size);
    context.fillStyle = /** @type {string} */ (colours[`${tone}-fill`]);
    context.fillRect(x, y + size - height, size, height);
    context.lineWidth = 1;
    context.strokeStyle = /** @type {string} */ (colours["line"]);
    if (square.mark === "down") {
      context.fillStyle = /** @type {string} */ (colours["panel"]);
      context.fillRect(x, y, size, size);
      context.strokeStyle = /** @type {string} */ (colours["bad-fill"]);
      context.lineWidth = size > 12 ? 2 : 1.5;
      line(context, x + size * 0.25, y + size * 0.25, x + size * 0.75, y + size * 0.75);
      line(context, x + size * 0.75, y + size * 0.25, x + size * 0.25, y + size * 0.75);
    } else if (square.mark === "disabled") {
      context.strokeStyle = /** @type {string} */ (colours["text"]);
      line(context, x, y + size, x + size, y);
      line(context, x, y + size / 2, x + size / 2, y);
      line(context, x + size / 2, y + size, x + size, y + size / 2);
    } else if (square.mark === "warn") {
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
    const column = Math.floor((event.clientX - box.left) / (this.size + GAP));
    const row = Math.floor((event.clientY - box.top) / (this.size + GAP));
    const place = row * this.perRow + column;
    return column >= 0 && column < this.perRow && row >= 0 && place < this.squares.length ? place : -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.perRow, ArrowDown: this.perRow };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (step !== undefined) {
      const place = this.chosen < 0 ? 0 : this.chosen + step;
      if (place >= 0 && place < this.squares.length) this.choose(place);
    } else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.squares.length - 1);
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
    if (place >= 0) this.tell("open", place);
  }

  /**
   * @param {string} what
   * @param {number} place
   */
  tell(what, place) {
    this.dispatchEvent(new CustomEvent(what, { detail: this.squares[place]?.key ?? null }));
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
