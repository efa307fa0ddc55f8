// @ts-check
/** The search at the top: hosts, servers, uuids and request ids. The key / leads here from everywhere. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { goTo, linkTo } from "./address.js";
import { Refused, get } from "./api.js";
import { redraw } from "./frame.js";
import { may, session } from "./session.js";

/** @typedef {{ what: string, text: string, link: string }} Hit */

const HITS_MAX = 8;
/** Names have 255 characters at most, and two are asked for around what is typed. */
const WORDS_MAX = 253;
const REQUEST_ID = /^req-[0-9a-f-]{8,}$/i;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/**
 * `found`: the words that the hits are for. `notice`: why nothing could be looked for.
 * @typedef {{ words: string, found: string, hits: Hit[] | null, chosen: number, notice: string }} SearchState
 */
const NOTHING = /** @type {SearchState} */ ({ words: "", found: "", hits: null, chosen: 0, notice: "" });

let state = NOTHING;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let asked = 0;

export function focusSearch() {
  const field = /** @type {HTMLInputElement | null} */ (document.getElementById("search"));
  field?.focus();
  field?.select();
}

export function drawSearch() {
  const { hits, chosen, notice } = state;
  const isOpen = hits !== null;
  return html`<form role="search" class="search" @submit=${submit}>
    <input id="search" type="search" placeholder="Search hosts, servers, uuids, requests ( / )" aria-label="Search hosts, servers, uuids and request ids"
      autocomplete="off" spellcheck="false" role="combobox" aria-expanded=${isOpen} aria-controls="hits" aria-autocomplete="list"
      aria-activedescendant=${isOpen && hits.length > 0 ? `hit-${chosen}` : nothing}
      @input=${(/** @type {InputEvent} */ event) => change(/** @type {HTMLInputElement} */ (event.target).value)} @keydown=${onKey} @blur=${() => setTimeout(closeIfLeft, 150)}>
    <ul id="hits" role="listbox" aria-label="Found" ?hidden=${!isOpen}>
      ${(hits ?? []).map(
        (hit, place) => html`<li id="hit-${place}" role="option" aria-selected=${place === chosen ? "true" : "false"} @mousedown=${() => open(hit)}>
          <span class="quiet">${hit.what}</span> ${hit.text}
        </li>`,
      )}
      ${isOpen && hits.length === 0 ? html`<li role="option" aria-selected="false" class="quiet">${notice || "Nothing found."}</li>` : nothing}
    </ul>
  </form>`;
}

/** @param {string} words */
function change(words) {
  state = { ...state, words: words.trim() };
  clearTimeout(timer);
  if (state.words === "") close();
  else timer = setTimeout(() => void look(state.words), 150);
}

/** @param {string} words */
async function look(words) {
  const number = ++asked;
  /** @type {Hit[]} */
  let hits = [];
  let notice = "";
  try {
    hits = await findHits(words);
  } catch (error) {
    notice = error instanceof Error ? error.message : String(error);
  }
  if (number !== asked) return;
  state = { ...state, found: words, hits, chosen: 0, notice };
  redraw();
}

/** @param {string} words */
async function findHits(words) {
  if (words.length > WORDS_MAX) throw new Refused(`No name or id is this long: search for at most ${WORDS_MAX} characters.`);
  const found = await Promise.all([inServers(words), inHosts(words), inJournal(words)]);
  return found.flat().slice(0, HITS_MAX);
}

/**
 * @param {string} words
 * @returns {Promise<Hit[]>}
 */
async function inServers(words) {
  if (!session.settings?.has_servers || !may("os_compute_api:servers:index")) return [];
  const scope = may("os_compute_api:servers:index:get_all_tenants") ? "&all_tenants=1" : "";
  const filter = UUID.test(words) ? `uuid=${words}` : `name=${encodeURIComponent(escapePattern(words))}`;
  /** @type {{ servers: Array<{ id: string, name: string }> }} */
  const { servers } = await get(`compute/v2.1/servers?limit=5${scope}&${filter}`);
  return servers.map(({ id, name }) => ({ what: "server", text: name, link: linkTo("server", id) }));
}

/** @param {string} words a name is a pattern for the compute API: what is typed is meant literally */
function escapePattern(words) {
  return words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/**
 * @param {string} words
 * @returns {Promise<Hit[]>}
 */
async function inHosts(words) {
  if (!may("berth:hosts:list")) return [];
  /** @type {Api.HostDetail[]} */
  const hosts = UUID.test(words) ? await findHost(words) : (await findHosts(words)).hosts;
  return hosts.map(({ name, uuid }) => ({ what: "host", text: name, link: linkTo("host", uuid) }));
}

/**
 * @param {string} words
 * @returns {Promise<Api.Hosts>}
 */
function findHosts(words) {
  return get(`berth/v1/hosts?limit=5&name=${encodeURIComponent(`*${words}*`)}`);
}

/**
 * @param {string} uuid
 * @returns {Promise<Api.HostDetail[]>}
 */
async function findHost(uuid) {
  try {
    /** @type {Api.OneHostTree} */
    const { host } = await get(`berth/v1/hosts/${uuid}`);
    return [host];
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}

/**
 * @param {string} words
 * @returns {Promise<Hit[]>}
 */
async function inJournal(words) {
  if (!may("berth:events:list")) return [];
  if (REQUEST_ID.test(words)) return [{ what: "request", text: words, link: linkTo("journal", "", { request_id: words }) }];
  if (UUID.test(words)) return [{ what: "history of", text: words, link: linkTo("journal", "", { subject: words }) }];
  return [];
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const count = state.hits?.length ?? 0;
  if (event.key === "Escape") {
    const field = /** @type {HTMLInputElement} */ (event.target);
    field.value = "";
    field.blur();
    close();
  } else if (event.key === "ArrowDown" && count > 0) state = { ...state, chosen: (state.chosen + 1) % count };
  else if (event.key === "ArrowUp" && count > 0) state = { ...state, chosen: (state.chosen + count - 1) % count };
  else return;
  event.preventDefault();
  redraw();
}

/** @param {SubmitEvent} event */
async function submit(event) {
  event.preventDefault();
  clearTimeout(timer);
  if (state.words === "") return;
  if (state.hits === null || state.found !== state.words) await look(state.words);
  const hit = state.hits?.[state.chosen];
  if (hit !== undefined) open(hit);
}

/** @param {Hit} hit */
function open(hit) {
  const field = /** @type {HTMLInputElement | null} */ (document.getElementById("search"));
  if (field !== null) {
    field.value = "";
    field.blur();
  }
  goTo(hit.link);
  close();
}

/** A hit that is clicked takes the focus first. */
function closeIfLeft() {
  if (document.activeElement?.id !== "search") close();
}

function close() {
  clearTimeout(timer);
  asked++;
  state = NOTHING;
  redraw();
}
