// @ts-check
/** Which view is shown, of what, with which filters: all of it is in the address, behind the #. */

import { redraw } from "./frame.js";

/** @typedef {{ view: string, id: string, query: URLSearchParams }} Address */

/** @returns {Address} */
export function readAddress() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...rest] = path.split("/");
  return { view, id: decode(rest.join("/")), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The link to a view. Values that are empty are left out of it.
 * @param {string} view
 * @param {string} [id]
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function linkTo(view, id = "", query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const words = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${id === "" ? "" : `/${encodeURIComponent(id)}`}${words === "" ? "" : `?${words}`}`;
}

/**
 * Change filters of the view that is shown, without a new entry in the browser's history. A list begins again at its
 * first page.
 * @param {Record<string, string | number | null | undefined>} changes
 */
export function changeQuery(changes) {
  const { view, id, query } = readAddress();
  history.replaceState(null, "", linkTo(view, id, { ...Object.fromEntries(query), before: null, ...changes }));
  redraw();
}

/** @param {string} link */
export function goTo(link) {
  location.hash = link;
}
