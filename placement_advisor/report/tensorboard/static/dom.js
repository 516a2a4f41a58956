/** Returns an element. Strings among its children become text, never markup. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Returns a list of texts. */
export const list = (texts) => el('ul', {}, ...texts.map((text) => el('li', {}, text)));

/** Returns a button; a sign on it wants words for what it does. */
export function button(text, onclick, label = null) {
  return el('button', { type: 'button', 'aria-label': label, title: label, onclick }, text);
}
