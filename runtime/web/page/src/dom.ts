// Elements without a framework. Text is always text: nothing that a job is called becomes markup.

type Child = Node | string | null | false;

/** An element with a class, attributes and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child): child is Node | string => child !== null && child !== false));
  return element;
}

/** A button that does something. */
export function button(label: string, act: () => void, attributes: Record<string, string> = {}): HTMLButtonElement {
  const made = el("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", act);
  return made;
}

/** A table with headings; numbers stand to the right. */
export function table(headings: string[], rows: Child[][], name: string): HTMLTableElement {
  const head = el("tr", {}, ...headings.map((text) => el("th", { scope: "col" }, text)));
  const body = rows.map((cells) =>
    el("tr", {}, ...cells.map((cell) => {
      const right = typeof cell === "string" && /^[\d.,]+( %|[a-z/ ]*)$/.test(cell);
      return el("td", right ? { class: "number" } : {}, cell);
    })),
  );
  return el("table", { "aria-label": name }, el("thead", {}, head), el("tbody", {}, ...body));
}

/** A canvas as large as its place, sharp on every screen. Returns its width and height in pixels of the page. */
export function fit(canvas: HTMLCanvasElement, height?: number): [CanvasRenderingContext2D, number, number] | null {
  const scale = window.devicePixelRatio || 1;
  const width = Math.max(canvas.clientWidth, 50);
  if (height !== undefined) canvas.style.height = `${height}px`;
  const tall = height ?? Math.max(canvas.clientHeight, 50);
  const [w, h] = [Math.round(width * scale), Math.round(tall * scale)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, tall);
  return [context, width, tall];
}

/** A colour of the theme. */
export function themed(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `1.5 MiB` */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) [count, unit] = [count / 1024, unit + 1];
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

/** `1:02:03` or `4.2 s` */
export function duration(ms: number): string {
  const seconds = Math.max(ms, 0) / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const rest = `${two((seconds / 60) % 60)}:${two(seconds % 60)}`;
  return hours > 0 ? `${hours}:${rest}` : rest;
}
