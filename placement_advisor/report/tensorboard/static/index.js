// The tab of TensorBoard: what the page shows is asked of its routes, again and again.
import { parse } from './json.js';
import { addPage, isRunning, redraw, refresh } from './page.js';
import { setDark } from './theme.js';

const RUNNING_MS = 2_000;
const COMPLETE_MS = 5_000;
// TensorBoard marks its own page as dark; ours is a frame in it, of the same origin.
const DARK = 'dark-mode';

/** What TensorBoard calls once its frame for the tab is there. */
export async function render() {
  const styled = style();
  addPage(ask);
  await styled;
  followTheme();
  await follow();
}

/** Loads the style sheet, whose colours the canvases take. */
function style() {
  const href = new URL('style.css', import.meta.url).href;
  return new Promise((onload) => {
    const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href, onload });
    document.head.append(link);
  });
}

/** Follows TensorBoard from light to dark and back. */
function followTheme() {
  const outer = window.parent.document.body;
  const apply = () => {
    setDark(outer.classList.contains(DARK));
    redraw();
  };
  new MutationObserver(apply).observe(outer, { attributeFilter: ['class'] });
  apply();
}

/** Shows what is new, and looks again after a while. */
async function follow() {
  try {
    if (!document.hidden) await refresh();
  } finally {
    setTimeout(follow, isRunning() ? RUNNING_MS : COMPLETE_MS);
  }
}

/** Returns what a route answers, null if there is nothing, and what is to be said of it. */
async function ask(route, query) {
  const answer = await fetch(`./${route}?${new URLSearchParams(query)}`).catch(() => null);
  const notice = answer ? '' : 'TensorBoard does not answer. What it told last stays.';
  const content = answer?.ok ? await answer.text().then(parse).catch(() => null) : null;
  return { content, notice };
}
