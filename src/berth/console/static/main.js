// @ts-check
/** The page: signing in, the frame around every view, and the view that the address names. */

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { drawActions, dropActions, openDialog } from "./actions.js";
import { linkTo, readAddress } from "./address.js";
import { dropFleet } from "./fleet.js";
import { redraw, startDrawing } from "./frame.js";
import { live, startLive, stopLive, takeEvents } from "./live.js";
import { refusalOf } from "./parts.js";
import { drawSearch, focusSearch } from "./search.js";
import { onSessionEnd, resume, session, signOut } from "./session.js";
import { drawSignIn } from "./sign_in.js";
import { beginDrawing, dropAll, endDrawing } from "./sources.js";
import { viewsOf } from "./views.js";

/** @type {unknown} */
let failure = null;
let isReady = false;
let shownAt = "";

const CONDITIONS = {
  connecting: ["busy", "connecting", "Waiting for the first answer."],
  "catching up": ["busy", "catching up", "Older changes are still coming in."],
  live: ["good", "live", "Changes appear as they happen."],
  lost: ["bad", "lost", "The server does not answer. What is shown is old; trying again."],
  paused: ["quiet", "paused", "The tab is hidden."],
  polling: ["quiet", "every 5 s", "Your role may not read the event stream, so lists are read again every 5 seconds."],
};
const MARKS = { good: "●", busy: "◐", bad: "✕", quiet: "○" };

function drawPage() {
  takeEvents();
  beginDrawing();
  if (failure !== null) return refusalOf(failure);
  if (!isReady) return html`<p class="quiet sign-in" role="status">Reading …</p>`;
  if (session.caller === null) return drawSignIn();
  startLive();
  return drawFrame(session.caller);
}

/** @param {Api.CallerDetail} caller */
function drawFrame(caller) {
  const { view } = readAddress();
  const views = viewsOf();
  const shown = views.find((one) => one.name === view) ?? (view === "" ? views[0] : undefined);
  const [tone, word, why] = /** @type {[keyof typeof MARKS, string, string]} */ (CONDITIONS[live.condition]);
  document.title = shown === undefined ? "Berth" : `${shown.titleOf?.(readAddress()) ?? shown.label} – Berth`;
  return html`<a class="skip" href="#" @click=${skip}>Skip to the content</a>
    <div class="top">
      <a class="name" href=${linkTo("")}><img src="icon.svg" alt="">Berth</a>
      ${drawSearch()}
      <div class="who">
        <span class="condition" title=${why} role="status" data-condition=${live.condition}><span class="chip ${tone}"><span class="mark" aria-hidden="true">${MARKS[tone]}</span>${word}</span></span>
        <span title="Project ${caller.project_id ?? ""}; roles: ${caller.roles.join(", ")}">${caller.user_id}</span>
        <button @click=${() => void signOut()}>Sign out</button>
      </div>
    </div>
    <div class="stripe ${live.condition.split(" ")[0]}"></div>
    <div class="columns">
      <nav class="menu" aria-label="Views">
        <ul>
          ${views
            .filter((one) => !one.isHidden)
            .map((one) => html`<li><a href=${linkTo(one.name)} aria-current=${isCurrent(one, shown) ? "page" : nothing}>${one.label}</a></li>`)}
        </ul>
      </nav>
      <main tabindex="-1" id="content">${shown === undefined ? drawUnknown() : shown.draw(readAddress())}</main>
    </div>
    ${drawActions()}`;
}

/**
 * @param {import("./views.js").View} one
 * @param {import("./views.js").View | undefined} shown
 */
function isCurrent(one, shown) {
  return shown !== undefined && (one === shown || one.name === shown.below);
}

function drawUnknown() {
  return html`<h1>There is no such view</h1><p>The address names a view that does not exist, or that your role may not see. Choose one from the menu.</p>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const at = /** @type {HTMLElement} */ (event.target);
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || at.matches("input, textarea, select")) return;
  event.preventDefault();
  focusSearch();
}

const page = /** @type {HTMLElement} */ (document.getElementById("page"));

startDrawing(() => {
  render(drawPage(), page);
  endDrawing();
  openDialog();
});
addEventListener("hashchange", () => {
  const { view, id } = readAddress();
  if (shownAt !== `${view}/${id}`) {
    shownAt = `${view}/${id}`;
    scrollTo(0, 0);
  }
  redraw();
});
addEventListener("keydown", onKey);
onSessionEnd(() => {
  stopLive();
  dropAll();
  dropActions();
  dropFleet();
});
try {
  await resume();
  isReady = true;
} catch (error) {
  failure = error;
}
redraw();
