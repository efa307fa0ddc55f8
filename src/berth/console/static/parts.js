// @ts-check
/** Pieces that views are made of. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { changeQuery, linkTo, readAddress } from "./address.js";
import { Refused } from "./api.js";
import { count, formatAmount, formatDuration, formatNumber, formatShare, formatTime, secondsSince, sortKeyOf } from "./format.js";

/** @typedef {import("./vendor/lit-html/lit-html.js").TemplateResult} Template */
/** @typedef {Template | string | number | typeof nothing} Shown */

const ROWS_MAX = 100;

/**
 * What a source has: what `draw` makes of it, why it cannot be read, or that it is being read.
 * @template T
 * @param {import("./sources.js").Source<T>} source
 * @param {(value: T) => Shown} draw
 */
export function show(source, draw) {
  const refusal = source.error === null ? nothing : refusalOf(source.error);
  if (source.value === undefined) return source.error === null ? html`<p class="quiet" role="status">Reading …</p>` : refusal;
  return html`${refusal}${draw(source.value)}`;
}

/**
 * Why something was refused: the API's sentence, and the id to find it by.
 * @param {unknown} error
 */
export function refusalOf(error) {
  const sentence = error instanceof Error ? error.message : String(error);
  const id = error instanceof Refused ? error.requestId : "";
  return html`<div class="refusal" role="alert">
    <p>${sentence}</p>
    ${id === "" ? nothing : html`<p class="quiet">Request <code>${id}</code></p>`}
  </div>`;
}

/** @typedef {"good" | "warn" | "bad" | "quiet" | "busy"} Tone */

const MARKS = { good: "●", warn: "▲", bad: "✕", quiet: "○", busy: "◐" };

/**
 * A state, in words, with a mark and a colour.
 * @param {Tone} tone
 * @param {string} text
 */
export function chip(tone, text) {
  return html`<span class="chip ${tone}"><span class="mark" aria-hidden="true">${MARKS[tone]}</span>${text}</span>`;
}

/**
 * How full something is.
 * @param {string} resourceClass
 * @param {number} used
 * @param {number} capacity
 */
export function bar(resourceClass, used, capacity) {
  return drawBar(resourceClass, used, capacity, tellUse(resourceClass, used, capacity));
}

/**
 * The same in less room: only the share is written.
 * @param {string} resourceClass
 * @param {number} used
 * @param {number} capacity
 */
export function shareBar(resourceClass, used, capacity) {
  return drawBar(resourceClass, used, capacity, formatShare(used, capacity));
}

/**
 * @param {string} resourceClass
 * @param {number} used
 * @param {number} capacity
 */
function tellUse(resourceClass, used, capacity) {
  return `${formatAmount(resourceClass, used)} of ${formatAmount(resourceClass, capacity)}`;
}

/**
 * @param {string} resourceClass
 * @param {number} used
 * @param {number} capacity
 * @param {string} text
 */
function drawBar(resourceClass, used, capacity, text) {
  const share = capacity > 0 ? Math.min(1, used / capacity) : 0;
  return html`<span class="bar">
    <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="${resourceClass}: ${tellUse(resourceClass, used, capacity)}, ${formatShare(used, capacity)}">
      <rect class="all" width="100" height="8"></rect>
      <rect class="used ${toneOf(share)}" width=${Math.round(share * 1000) / 10} height="8"></rect>
    </svg>
    <span class="figures">${text}</span>
  </span>`;
}

/** @param {number} share */
export function toneOf(share) {
  return share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "good";
}

/** @param {string | null | undefined} iso */
export function time(iso) {
  if (!iso) return html`<span class="quiet">never</span>`;
  return html`<time datetime=${iso} title=${iso}>${formatTime(iso)}</time>`;
}

/** @param {string | null | undefined} iso */
export function ago(iso) {
  if (!iso) return html`<span class="quiet">never</span>`;
  return html`<time datetime=${iso} title=${iso}>${formatDuration(secondsSince(iso))} ago</time>`;
}

/**
 * @param {string} view
 * @param {string} id
 * @param {string} [text]
 */
export function link(view, id, text = id) {
  return html`<a href=${linkTo(view, id)}>${text}</a>`;
}

/** @param {string} uuid */
export function shortId(uuid) {
  return html`<code class="short" title=${uuid}>${uuid.slice(0, 8)}</code>`;
}

/**
 * @param {string} title
 * @param {Shown | Shown[]} content
 * @param {{ beside?: Shown, id?: string }} [more]
 */
export function panel(title, content, more = {}) {
  return html`<section class="panel" aria-label=${title}>
    <header><h2>${title}</h2>${more.beside ?? nothing}</header>
    ${content}
  </section>`;
}

/** @param {Array<[string, Shown]>} pairs */
export function facts(pairs) {
  return html`<dl class="facts">${pairs.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name what it is called in the address
 * @property {string} label
 * @property {(row: Row) => string | number} by what rows are sorted by
 * @property {(row: Row) => Shown} [cell] what is shown, if not that
 * @property {boolean} [isNumber]
 * @property {boolean} [isWide] hidden on narrow screens
 */

/**
 * A table that is sorted by its headings; how is in the address. Long ones are cut, and say so.
 * @template Row
 * @param {string} caption
 * @param {Column<Row>[]} columns
 * @param {Row[]} rows
 * @param {(row: Row) => string} key
 * @param {{ empty?: string, sort?: string }} [more]
 */
export function table(caption, columns, rows, key, more = {}) {
  if (rows.length === 0) return html`<p class="quiet">${more.empty ?? "None."}</p>`;
  const { query } = readAddress();
  const asked = query.get("sort") ?? more.sort ?? "";
  const isDown = asked.startsWith("-");
  const column = columns.find((one) => one.name === asked.replace(/^-/, ""));
  const sorted = column === undefined ? rows : sort(rows, column, isDown);
  const all = query.get("rows") === "all";
  const shown = all ? sorted : sorted.slice(0, ROWS_MAX);
  const cut = rows.length - shown.length;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
      <caption class="hidden">${caption}</caption>
      <thead><tr>${columns.map((one) => heading(one, column === one ? (isDown ? "descending" : "ascending") : null))}</tr></thead>
      <tbody>${repeat(shown, key, (row) => html`<tr>${columns.map((one) => cell(one, row))}</tr>`)}</tbody>
    </table></div>
    ${cut > 0
      ? html`<p class="quiet">${count(cut, "more row")}. <button class="link" @click=${() => changeQuery({ rows: "all" })}>Show all</button></p>`
      : nothing}`;
}

/**
 * @template Row
 * @param {Column<Row>} column
 * @param {"ascending" | "descending" | null} order
 */
function heading(column, order) {
  const next = order === "ascending" ? `-${column.name}` : column.name;
  return html`<th scope="col" class=${classes(column)} aria-sort=${order ?? "none"}>
    <button class="sort" @click=${() => changeQuery({ sort: next })}>${column.label}<span aria-hidden="true">${order === null ? "" : order === "ascending" ? " ↑" : " ↓"}</span></button>
  </th>`;
}

/**
 * @template Row
 * @param {Column<Row>} column
 * @param {Row} row
 */
function cell(column, row) {
  const by = column.by(row);
  const shown = column.cell?.(row) ?? (typeof by === "number" ? formatNumber(by) : by);
  return html`<td class=${classes(column)}>${shown}</td>`;
}

/** @param {Column<any>} column */
function classes(column) {
  return `${column.isNumber ? "number" : ""} ${column.isWide ? "wide" : ""}`;
}

/** What was sorted last, for drawings in which nothing else is asked for. */
/** @type {{ rows: unknown[], name: string, isDown: boolean, sorted: unknown[] } | null} */
let lastSort = null;

/**
 * @template Row
 * @param {Row[]} rows
 * @param {Column<Row>} column
 * @param {boolean} isDown
 * @returns {Row[]}
 */
function sort(rows, column, isDown) {
  if (lastSort?.rows === rows && lastSort.name === column.name && lastSort.isDown === isDown) {
    return /** @type {Row[]} */ (lastSort.sorted);
  }
  const sign = isDown ? -1 : 1;
  const sorted = rows
    .map((row) => ({ row, by: keyOf(column.by(row)) }))
    .sort((one, other) => sign * compare(one.by, other.by))
    .map(({ row }) => row);
  lastSort = { rows, name: column.name, isDown, sorted };
  return sorted;
}

/**
 * @param {string | number} one
 * @param {string | number} other
 */
function compare(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** @param {string | number} by */
function keyOf(by) {
  return typeof by === "number" ? by : sortKeyOf(by);
}

/**
 * A filter that is in the address.
 * @param {string} name
 * @param {string} label
 * @param {string} placeholder
 */
export function textFilter(name, label, placeholder) {
  const value = readAddress().query.get(name) ?? "";
  return html`<label>${label}
    <input type="search" name=${name} .value=${value} placeholder=${placeholder} autocomplete="off" spellcheck="false"
      @input=${(/** @type {InputEvent} */ event) => changeQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value.trim() })}>
  </label>`;
}

/**
 * @param {string} name
 * @param {string} label
 * @param {Array<[string, string]>} options the value, and what it is called
 * @param {string} [standard] the value when the address has none
 */
export function choice(name, label, options, standard = "") {
  const value = readAddress().query.get(name) ?? standard;
  return html`<label>${label}
    <select name=${name} .value=${value}
      @change=${(/** @type {Event} */ event) => changeQuery({ [name]: /** @type {HTMLSelectElement} */ (event.target).value })}>
      ${options.map(([option, text]) => html`<option value=${option} ?selected=${option === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** @param {...Shown} content */
export function filters(...content) {
  return html`<form class="filters" role="search" @submit=${(/** @type {Event} */ event) => event.preventDefault()}>${content}</form>`;
}
