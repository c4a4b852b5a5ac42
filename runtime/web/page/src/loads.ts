// Loads of ranks and their colours.

/** The load of which nothing is known. */
export const UNKNOWN = 255;

/** Two hexadecimal digits a rank, in per cent. */
export function parseLoads(text: string): number[] {
  const loads: number[] = [];
  for (let at = 0; at + 1 < text.length; at += 2) loads.push(parseInt(text.slice(at, at + 2), 16));
  return loads;
}

/** From blue for nothing over green to red for all; grey where nothing is known. `light` shades it, 100 is as it is. */
export function loadColour(load: number, light = 100): string {
  if (load === UNKNOWN) return `hsl(0 0% ${Math.round(50 * light / 100)}%)`;
  const hue = 220 - 2.2 * Math.min(load, 100);
  return `hsl(${Math.round(hue)} 75% ${Math.round(52 * light / 100)}%)`;
}

/** The mean of what is known. */
export function meanLoad(loads: number[]): number | null {
  const known = loads.filter((load) => load !== UNKNOWN);
  return known.length === 0 ? null : known.reduce((sum, load) => sum + load, 0) / known.length;
}

/** A colour of its own for each job; neighbours in number differ most. */
export function jobColour(job: number): string {
  return `hsl(${Math.round((job * 137.508) % 360)} 60% 50%)`;
}
