// The file report.html: what the page shows stands in it.
import { parse } from './json.js';
import { addPage, drawForPaper, redraw, refresh } from './page.js';
import { setDark } from './theme.js';

const answers = parse(document.getElementById('answers').textContent);
const details = new Map(answers.details);
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');

addPage(ask, { hasOneRun: true, date: answers.date });
systemIsDark.addEventListener('change', followSystem);
followSystem();
addEventListener('beforeprint', readyForPaper);
refresh();

function followSystem() {
  setDark(systemIsDark.matches);
  redraw();
}

/** Returns what `index.js` asks TensorBoard for. */
async function ask(route, { candidate }) {
  if (route === 'runs') return { content: answers.runs, notice: '' };
  const packed = route === 'overview' ? answers.overview : details.get(candidate);
  return { content: packed ? parse(await unpacked(packed)) : null, notice: '' };
}

/** Returns the text that was packed by gzip and written in base64. */
function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(text).text();
}

/** Paper is white and narrow. Afterwards the page is as it was. */
function readyForPaper() {
  const { classList } = document.documentElement;
  classList.add('paper');
  setDark(false);
  drawForPaper();
  const back = () => {
    classList.remove('paper');
    followSystem();
  };
  addEventListener('afterprint', back, { once: true });
}
