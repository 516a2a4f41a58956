import { Canvas, fitted } from './canvas.js';
import { el } from './dom.js';
import { formatBytes, formatFlops } from './format.js';
import { color, deviceColor, deviceColorName } from './theme.js';
import { button, shortName } from './timeline.js';

const HEIGHT = 460;
const MARGIN = 24;
const READABLE = 60;
const LARGEST = 120;
const HELP =
  'Drag or arrow keys to move, + − or Ctrl and wheel to zoom, 0 for all, ' +
  'n and p for the next and previous layer.';

/** The layers of the forward pass in the colours of their devices, with what crosses between. */
export class Layers {
  constructor() {
    this.canvas = new Canvas('Layers by device', (...where) => this.draw(...where));
    this.canvas.height = HEIGHT;
    this.legend = el('div', { class: 'legend' });
    this.told = el('p', { class: 'told', 'aria-live': 'polite' });
    this.search = el('input', {
      type: 'search',
      placeholder: 'Find a layer',
      'aria-label': 'Find a layer',
      oninput: () => this.find(0),
      onkeydown: (event) => event.key === 'Enter' && this.find(1),
    });
    this.note = el('p', { class: 'hint' });
    this.element = el(
      'div',
      {},
      el(
        'div',
        { class: 'tools' },
        this.search,
        button('+', 'Zoom in', () => this.zoom(0.6)),
        button('−', 'Zoom out', () => this.zoom(1 / 0.6)),
        button('0', 'Show all layers', () => this.whole()),
        el('span', { class: 'hint' }, HELP),
      ),
      this.legend,
      this.note,
      this.canvas.element,
      this.told,
    );
    this.graph = { layers: [], flows: [], box: [1, 1] };
    this.deviceOf = [];
    this.cuts = new Map();
    this.chosen = null;
    this.view = null;
    this.canvas.onPointer({
      over: (x, y) => this.tell(this.layerAt(x, y)),
      drag: (dx, dy) => this.move(dx, dy),
      click: (x, y) => this.choose(this.layerAt(x, y)),
    });
    this.canvas.onZoom((factor, x, y) => this.zoom(factor, x, y));
    this.canvas.onKey({
      ArrowLeft: () => this.move(80, 0),
      ArrowRight: () => this.move(-80, 0),
      ArrowUp: () => this.move(0, 80),
      ArrowDown: () => this.move(0, -80),
      '+': () => this.zoom(0.6),
      '=': () => this.zoom(0.6),
      '-': () => this.zoom(1 / 0.6),
      0: () => this.whole(),
      n: () => this.chooseNext(1),
      p: () => this.chooseNext(-1),
    });
  }

  /** Shows a graph; where layers stand does not depend on the candidate. */
  showGraph(graph) {
    if (JSON.stringify(graph) === JSON.stringify(this.graph)) return;
    this.graph = graph;
    this.deviceOf = [];
    this.cuts = new Map();
    this.chosen = null;
    this.element.hidden = !graph.layers.length;
    this.whole();
  }

  /** Colours it for a candidate; `samples` are given where the batch is split. */
  showCandidate(details, devices, samples) {
    this.devices = devices;
    this.deviceOf = details.layers ?? [];
    this.cuts = new Map(details.cuts ?? []);
    const used = new Set(this.deviceOf);
    this.legend.replaceChildren(
      ...devices.flatMap((name, number) =>
        used.has(number)
          ? [el('span', {}, el('i', { class: `swatch ${deviceColorName(number)}` }), name)]
          : [],
      ),
    );
    this.note.textContent = samples
      ? `Every device has all layers, for ${samples.join(' + ')} samples.`
      : this.cuts.size
        ? `${this.cuts.size} of ${this.graph.flows.length} arrows cross to another device.`
        : 'No forward tensor crosses to another device.';
    this.tell(null);
    this.canvas.redraw();
  }

  whole() {
    this.view = null;
    this.canvas.redraw();
  }

  /** Returns scale and shift; those that show all layers unless others were chosen. */
  shownView() {
    this.view ??= this.fit(this.canvas.width, this.canvas.height);
    return this.view;
  }

  fit(width, height) {
    const [boxWidth, boxHeight] = this.graph.box;
    const xs = this.graph.layers.map((layer) => layer.at[0]);
    const ys = this.graph.layers.map((layer) => layer.at[1]);
    const [left, right] = [Math.min(...xs) - boxWidth / 2, Math.max(...xs) + boxWidth / 2];
    const [top, bottom] = [Math.min(...ys) - boxHeight / 2, Math.max(...ys) + boxHeight / 2];
    const scale = Math.min(
      (width - 2 * MARGIN) / (right - left),
      (height - 2 * MARGIN) / (bottom - top),
      LARGEST,
    );
    return {
      scale,
      x: width / 2 - ((left + right) / 2) * scale,
      y: height / 2 - ((top + bottom) / 2) * scale,
    };
  }

  zoom(factor, x = this.canvas.width / 2, y = this.canvas.height / 2) {
    const view = this.shownView();
    const scale = Math.min(LARGEST * 2, Math.max(0.5, view.scale / factor));
    this.view = {
      scale,
      x: x - ((x - view.x) * scale) / view.scale,
      y: y - ((y - view.y) * scale) / view.scale,
    };
    this.canvas.redraw();
  }

  move(dx, dy) {
    const view = this.shownView();
    view.x += dx;
    view.y += dy;
    this.canvas.redraw();
  }

  point([x, y]) {
    return [this.view.x + x * this.view.scale, this.view.y + y * this.view.scale];
  }

  layerAt(x, y) {
    const [halfX, halfY] = this.graph.box.map((side) => (side * this.shownView().scale) / 2);
    const found = this.graph.layers.findIndex((layer) => {
      const [cx, cy] = this.point(layer.at);
      return Math.abs(cx - x) <= halfX && Math.abs(cy - y) <= halfY;
    });
    return found < 0 ? null : found;
  }

  tell(number) {
    const shown = number ?? this.chosen;
    this.told.textContent = shown === null ? '' : this.words(shown);
  }

  words(number) {
    const layer = this.graph.layers[number];
    const device = this.devices?.[this.deviceOf[number]];
    const parts = [layer.name, device, `${layer.ops} ops`, formatFlops(layer.flops)];
    for (const [flow, bytes] of this.cuts) {
      const { source, target } = this.graph.flows[flow];
      if (source === number) {
        parts.push(`${formatBytes(bytes)} cross to ${this.graph.layers[target].name}`);
      } else if (target === number) {
        parts.push(`${formatBytes(bytes)} cross from ${this.graph.layers[source].name}`);
      }
    }
    return parts.filter(Boolean).join(' · ');
  }

  choose(number) {
    this.chosen = number;
    this.tell(number);
    this.canvas.redraw();
  }

  chooseNext(by) {
    const count = this.graph.layers.length;
    this.goTo(this.chosen === null ? 0 : (this.chosen + by + count) % count);
  }

  find(skip) {
    const wanted = this.search.value.toLowerCase();
    const { layers } = this.graph;
    if (!wanted) return;
    const start = this.chosen === null ? 0 : this.chosen + skip;
    for (let i = 0; i < layers.length; i += 1) {
      const number = (start + i) % layers.length;
      if (layers[number].name.toLowerCase().includes(wanted)) {
        this.goTo(number);
        return;
      }
    }
    this.told.textContent = 'No layer is called so.';
  }

  /** Chooses a layer and moves it to the middle, large enough to read. */
  goTo(number) {
    const scale = Math.max(this.shownView().scale, READABLE);
    const [x, y] = this.graph.layers[number].at;
    this.view = {
      scale,
      x: this.canvas.width / 2 - x * scale,
      y: this.canvas.height / 2 - y * scale,
    };
    this.choose(number);
  }

  draw(context, width, height) {
    context.fillStyle = color('background');
    context.fillRect(0, 0, width, height);
    if (!this.graph.layers.length) return;
    this.shownView();
    context.textBaseline = 'middle';
    const colors = { line: color('flow'), cut: color('copy'), ink: color('ink') };
    this.graph.flows.forEach((flow, number) => {
      if (!this.cuts.has(number)) this.drawFlow(context, flow, colors.line, 1);
    });
    for (const number of this.cuts.keys()) {
      this.drawFlow(context, this.graph.flows[number], colors.cut, 2.5);
    }
    this.drawBoxes(context, width, height);
    if (this.view.scale >= READABLE * 0.6) this.drawCutBytes(context, colors);
  }

  drawFlow(context, flow, style, thickness) {
    context.strokeStyle = style;
    context.lineWidth = thickness;
    context.beginPath();
    for (const stop of flow.route) context.lineTo(...this.point(stop));
    context.stroke();
  }

  drawBoxes(context, width, height) {
    const [boxWidth, boxHeight] = this.graph.box.map((side) => side * this.view.scale);
    const fills = (this.devices ?? []).map((_, number) => deviceColor(number));
    const noDevice = deviceColor(null);
    const hasNames = boxWidth > 40;
    context.font = `${Math.min(13, boxHeight * 0.55)}px ${color('font')}`;
    this.graph.layers.forEach((layer, number) => {
      const [x, y] = this.point(layer.at);
      const [left, top] = [x - boxWidth / 2, y - boxHeight / 2];
      if (left > width || top > height || left + boxWidth < 0 || top + boxHeight < 0) return;
      context.fillStyle = fills[this.deviceOf[number]] ?? noDevice;
      context.fillRect(left, top, boxWidth, boxHeight);
      if (number === this.chosen) {
        context.strokeStyle = color('ink');
        context.lineWidth = 3;
        context.strokeRect(left, top, boxWidth, boxHeight);
      }
      if (hasNames) {
        context.fillStyle = color('on-device');
        context.fillText(fittedPath(context, layer.name, boxWidth - 10), left + 5, y);
      }
    });
  }

  drawCutBytes(context, colors) {
    context.font = `12px ${color('font')}`;
    for (const [number, bytes] of this.cuts) {
      const { route } = this.graph.flows[number];
      const middle = (route.length - 1) / 2;
      const ends = [route[Math.floor(middle)], route[Math.ceil(middle)]];
      const [low, high] = ends[0] === ends[1] ? [route[0], route[1]] : ends;
      const [x, y] = this.point([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2]);
      const text = formatBytes(bytes);
      const { width } = context.measureText(text);
      context.fillStyle = color('background');
      context.fillRect(x + 5, y - 8, width + 4, 16);
      context.fillStyle = colors.ink;
      context.fillText(text, x + 7, y);
    }
  }
}

/** Returns the name of a layer if there is room for it, else the end of its path. */
function fittedPath(context, name, width) {
  const isShort = context.measureText(name).width <= width;
  return isShort ? name : fitted(context, shortName(name), width);
}
