import { Canvas } from './canvas.js';
import { button, el } from './dom.js';

const ZOOM = 0.6;

/**
 * A canvas that is moved and zoomed, with its buttons above, and below what is told of one thing.
 *
 * What is on it is up to those who extend it: `draw`, `at` (the thing at a place, or null), `words`
 * of a thing, `drag`, `zoom` about a place, `whole`, `chooseNext`.
 */
export class Panel {
  constructor(label, { all, help, keys, above = [] }) {
    this.canvas = new Canvas(label, (...where) => this.draw(...where));
    this.told = el('p', { class: 'told', 'aria-live': 'polite' });
    this.chosen = null;
    const hint = el('span', { id: `${label.replaceAll(' ', '-')}-help` }, help);
    this.canvas.element.setAttribute('aria-describedby', hint.id);
    this.tools = el(
      'div',
      { class: 'tools' },
      button('+', () => this.zoom(ZOOM), 'Zoom in'),
      button('−', () => this.zoom(1 / ZOOM), 'Zoom out'),
      button(all, () => this.whole()),
      el('details', { class: 'hint' }, el('summary', {}, 'Keys'), hint),
    );
    this.content = el('div', {}, this.tools, ...above, this.canvas.element, this.told);
    this.nothing = el('p', { hidden: true });
    this.element = el('div', {}, this.content, this.nothing);
    this.canvas.onPointer({
      over: (x, y) => this.tell(this.at(x, y)),
      drag: (dx, dy) => this.drag(dx, dy),
      click: (x, y) => this.choose(this.at(x, y)),
    });
    this.canvas.onZoom((factor, x, y) => this.zoom(factor, x, y));
    this.canvas.onKey({
      '+': () => this.zoom(ZOOM),
      '=': () => this.zoom(ZOOM),
      '-': () => this.zoom(1 / ZOOM),
      0: () => this.whole(),
      n: () => this.chooseNext(1),
      p: () => this.chooseNext(-1),
      ...keys,
    });
  }

  /** Says why there is nothing to show; null if there is something. */
  sayNothing(why) {
    this.content.hidden = why !== null;
    this.nothing.hidden = why === null;
    this.nothing.textContent = why ?? '';
  }

  /** Tells of a thing, without one of that which is chosen. */
  tell(found) {
    const shown = found ?? this.chosen;
    this.told.textContent = shown === null ? '' : this.words(shown);
  }

  choose(found) {
    this.chosen = found;
    this.tell(found);
    this.canvas.redraw();
  }
}
