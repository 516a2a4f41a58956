import { el } from './dom.js';

/** Returns the findings, each with its explanation to unfold; `none` says that there are none. */
export function findingList(findings, none) {
  if (!findings.length) return el('p', {}, `${none}.`);
  return el('div', {}, ...findings.map(finding));
}

function finding(each) {
  return el(
    'article',
    { class: 'finding' },
    el('h3', {}, `${each.code} ${each.finding}`),
    each.hypothetical
      ? el('p', { class: 'hint' }, 'Of a split that is not recommended.')
      : null,
    el('p', {}, each.action),
    each.where ? el('p', { class: 'hint' }, each.where) : null,
    each.saves === null ? null : el('p', {}, `Saves ${each.saves}.`),
    el('details', {}, el('summary', {}, `What ${each.code} means`), ...page(each.page)),
  );
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
  if (/^\|/.test(text.trim())) return el('pre', {}, text.trim());
  return el('p', {}, ...inline(text.trim()));
}

const inline = (text) =>
  text
    .split(/(`[^`]+`|\*\*[^*]+\*\*)/)
    .map((part) =>
      part.startsWith('`')
        ? el('code', {}, part.slice(1, -1))
        : part.startsWith('**')
          ? el('b', {}, part.slice(2, -2))
          : part,
    );
