/** A canvas as wide as its container, sharp on any screen, drawn once per frame at most. */
export class Canvas {
  constructor(label, draw) {
    this.element = document.createElement('canvas');
    this.element.tabIndex = 0;
    // Screen readers leave the keys of an application to it.
    this.element.setAttribute('role', 'application');
    this.element.setAttribute('aria-label', label);
    this.context = this.element.getContext('2d', { alpha: false });
    this.height = 0;
    this.width = 0;
    this.draw = draw;
    this.waiting = false;
    new ResizeObserver(() => this.redraw()).observe(this.element);
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint(ratio = window.devicePixelRatio) {
    this.width = this.element.clientWidth;
    if (!this.width || !this.height) return;
    this.resize(Math.round(this.width * ratio), Math.round(this.height * ratio));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw(this.context, this.width, this.height);
  }

  /** Gives it a size in pixels of the screen; that makes its memory anew, so only if it is another. */
  resize(width, height) {
    if (this.element.width === width && this.element.height === height) return;
    this.element.style.height = `${this.height}px`;
    [this.element.width, this.element.height] = [width, height];
  }

  /** Calls back with the x and y of pointers: moved over it, dragged by, clicked at. */
  onPointer({ over, drag, click }) {
    let last = null;
    let isDragged = false;
    this.element.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      last = event;
      isDragged = false;
      this.element.setPointerCapture(event.pointerId);
    });
    this.element.addEventListener('pointermove', (event) => {
      if (last === null) {
        over(event.offsetX, event.offsetY);
        return;
      }
      const [dx, dy] = [event.offsetX - last.offsetX, event.offsetY - last.offsetY];
      isDragged ||= Math.abs(dx) + Math.abs(dy) > 3;
      if (isDragged) {
        drag(dx, dy);
        last = event;
      }
    });
    this.element.addEventListener('pointerup', (event) => {
      if (last !== null && !isDragged) click(event.offsetX, event.offsetY);
      last = null;
    });
    // A finger that turns out to scroll the page.
    this.element.addEventListener('pointercancel', () => {
      last = null;
    });
  }

  /** Calls back with a factor and the place of the pointer; without Ctrl the wheel scrolls. */
  onZoom(zoom) {
    this.element.addEventListener(
      'wheel',
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        zoom(Math.exp(event.deltaY / 300), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
  }

  /** Calls the action of a key. */
  onKey(actions) {
    this.element.addEventListener('keydown', (event) => {
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
  }
}

/** Returns text shortened to a width. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [fits, long] = [0, Math.min(text.length, 200)];
  while (long - fits > 1) {
    const middle = (fits + long) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) fits = middle;
    else long = middle;
  }
  return fits > 1 ? `${text.slice(0, fits)}…` : '';
}
