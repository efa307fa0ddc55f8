// @ts-check
/** Draw once per animation frame, however much has changed since the last one. */

/** @type {(() => void) | null} */
let draw = null;
let isAsked = false;

/** @param {() => void} how draws the whole page */
export function startDrawing(how) {
  draw = how;
  redraw();
}

/** Have the page drawn in the next frame. */
export function redraw() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    draw?.();
  });
}
