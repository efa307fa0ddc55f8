// @ts-check
/** Things that are done: asked for in a dialog where that is due, and what came of them told at the edge of the page. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { redraw } from "./frame.js";
import { refusalOf } from "./parts.js";
import { session } from "./session.js";
import { spoilAll } from "./sources.js";

/** @typedef {import("./parts.js").Shown} Shown */

const TOLD_MAX = 4;
const TOLD_MS = 8000;

/** @type {Array<{ content: Shown }>} */
let told = [];

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {Shown} [text]
 * @property {string} button
 * @property {boolean} [isDanger]
 * @property {Array<{ name: string, label: string, isRequired?: boolean }>} [fields]
 * @property {(values: Record<string, string>) => Promise<string>} act returns what is told when it is done
 */

/** @type {Question | null} */
let question = null;
let isActing = false;
/** @type {unknown} */
let refusal = null;

/** @param {Question} asked */
export function askFirst(asked) {
  question = asked;
  refusal = null;
  redraw();
}

/** @param {Shown} content */
export function tell(content) {
  /** @type {{ content: Shown }} */
  const entry = { content };
  told = [...told, entry].slice(-TOLD_MAX);
  setTimeout(() => dismiss(entry), TOLD_MS);
  redraw();
}

/** @param {{ content: Shown }} entry */
function dismiss(entry) {
  told = told.filter((other) => other !== entry);
  redraw();
}

/** Forget what was asked and told: somebody else may sign in. */
export function dropActions() {
  question = null;
  told = [];
}

/** What was done, and the dialog if one is open. */
export function drawActions() {
  return html`<div class="told" role="status" aria-live="polite">
      ${told.map((entry) => html`<div>${entry.content}<button aria-label="Dismiss" @click=${() => dismiss(entry)}>✕</button></div>`)}
    </div>
    ${question === null ? nothing : drawDialog(question)}`;
}

/** Open the dialog that has just been drawn. */
export function openDialog() {
  const dialog = document.querySelector("dialog");
  if (dialog !== null && !dialog.open) dialog.showModal();
}

/** @param {Question} asked */
function drawDialog(asked) {
  return html`<dialog aria-labelledby="asked" @close=${close}>
    <form @submit=${submit}>
      <h2 id="asked">${asked.title}</h2>
      ${asked.text === undefined ? nothing : html`<p>${asked.text}</p>`}
      ${(asked.fields ?? []).map(
        (field) => html`<label>${field.label}<input name=${field.name} ?required=${field.isRequired ?? false} maxlength="255" autocomplete="off"></label>`,
      )}
      ${refusal === null ? nothing : refusalOf(refusal)}
      <div class="buttons">
        <button type="button" @click=${close}>Cancel</button>
        <button class=${asked.isDanger ? "danger" : "main"} ?disabled=${isActing}>${asked.button}</button>
      </div>
    </form>
  </dialog>`;
}

function close() {
  document.querySelector("dialog")?.close();
  question = null;
  redraw();
}

/** @param {SubmitEvent} event */
async function submit(event) {
  event.preventDefault();
  if (question === null || isActing) return;
  const asked = question;
  const given = new FormData(/** @type {HTMLFormElement} */ (event.target));
  const values = Object.fromEntries([...given].map(([name, value]) => [name, String(value)]));
  isActing = true;
  redraw();
  try {
    tell(html`<p>${await asked.act(values)}</p>`);
    if (question === asked) close();
    spoilAll();
  } catch (error) {
    // Whoever has closed the dialog meanwhile has still asked for it.
    if (question === asked) refusal = error;
    else if (session.caller !== null) tell(refusalOf(error));
  }
  isActing = false;
  redraw();
}
