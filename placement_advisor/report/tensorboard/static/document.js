// Sections as elements: their parts are text, lists, code, tables and our own Markdown.
import { chart } from './chart.js';
import { button, el, list } from './dom.js';

const FEW = 15;

/** Returns the elements of parts. */
export const elements = (parts) => parts.flatMap(part);

/** Returns the findings, each with its explanation to unfold; `none` says that there are none. */
export const findingList = (findings, none) =>
  findings.length
    ? findings.map(({ title, parts }) =>
        el('article', { class: 'finding' }, el('h3', {}, title), ...elements(parts)),
      )
    : [el('p', {}, none)];

function part({ folded, ...content }) {
  const inner = inside(content);
  return folded ? [el('details', {}, el('summary', {}, folded), ...inner)] : inner;
}

function inside({ text = '', lead, is_hint: isHint, items, code, table, markdown, charts }) {
  if (items) return [list(items)];
  if (charts) return [el('div', { class: 'charts' }, ...charts.map(chart))];
  if (code) return [toCopy(code)];
  if (table) return [el('div', { class: 'wide' }, ...tableOf(table))];
  if (markdown) return page(markdown);
  return [el('p', isHint ? { class: 'hint' } : {}, lead ? el('b', {}, lead) : null, text)];
}

/** Returns a table; of one with a count, the first rows and a button that shows more of them. */
function tableOf({ caption, head, rows, bold = [], count }) {
  const row = (cells, number) => {
    const [first, ...others] = bold.includes(number) ? cells.map((cell) => el('b', {}, cell)) : cells;
    const name = count ? el('code', {}, first) : first;
    return el(
      'tr',
      {},
      el('th', { scope: 'row' }, name),
      ...others.map((cell, i) => el('td', { 'data-title': head[i + 1] || null }, cell)),
    );
  };
  const columns = head.map((cell) => el('th', { scope: 'col' }, cell));
  const title = el('caption', {});
  const body = el('tbody', {});
  const show = (most) => {
    const shown = rows.slice(0, most);
    title.textContent = count ? `${caption}: ${shown.length} of ${count}` : caption;
    body.replaceChildren(...shown.map(row));
  };
  show(count ? FEW : rows.length);
  const table = el('table', {}, title, el('thead', {}, el('tr', {}, ...columns)), body);
  if (!count || rows.length <= FEW) return [table];
  const more = button('Show more', () => {
    show(rows.length);
    more.remove();
  });
  return [table, more];
}

/** Returns code with a button that copies it, or chooses it where the browser lets no page copy. */
function toCopy(text) {
  const shown = el('pre', {}, text);
  const said = el('span', { class: 'hint', role: 'status' });
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    if (!isCopied) getSelection().selectAllChildren(shown);
    said.textContent = isCopied ? 'Copied.' : 'Chosen: Ctrl+C copies it.';
  };
  return el('div', { class: 'code' }, el('div', { class: 'tools' }, button('Copy', copy), said), shown);
}

/** Returns the blocks of a page in the Markdown that our own pages use. */
function page(markdown) {
  return markdown.split(/^```\w*\n([^]*?)^```$/m).flatMap((part, place) =>
    place % 2
      ? [el('pre', {}, part)]
      : part
          .split(/\n{2,}/)
          .filter((block) => block.trim())
          .map(block),
  );
}

function block(text) {
  const heading = /^(#+) (.*)/.exec(text.trim());
  if (heading) return el('h4', {}, ...inline(heading[2]));
  if (/^\s*[-*] /.test(text)) {
    const items = text.trim().split(/\n(?=[-*] )/);
    return el('ul', {}, ...items.map((item) => el('li', {}, ...inline(item.slice(2)))));
  }
  if (/^\|/.test(text.trim())) {
    const [, , ...rows] = text.trim().split('\n').map((line) => line.split('|').slice(1, -1));
    const cells = (row) => row.map((cell) => el('td', {}, ...inline(cell.trim())));
    return el('table', {}, ...rows.map((row) => el('tr', {}, ...cells(row))));
  }
  return el('p', {}, ...inline(text.trim()));
}

const inline = (text) =>
  text
    .replaceAll(/\[([^\]]+)\]\([^)]*\)/g, '$1')
    .split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*]+\*)/)
    .map((part) =>
      part.startsWith('`')
        ? el('code', {}, part.slice(1, -1))
        : part.startsWith('**')
          ? el('b', {}, part.slice(2, -2))
          : part.startsWith('*') && part.length > 2
            ? el('i', {}, part.slice(1, -1))
            : part,
    );
