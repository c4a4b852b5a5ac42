// The grid of ranks: a block for each, whose height and colour are its load. Flat, or seen from above one corner.

import { button, el, fit, themed } from "./dom";
import { loadColour, meanLoad, parseLoads, UNKNOWN } from "./loads";
import type { JobPicture, Picture, View } from "./types";

/** Where a rank was drawn last, for the pointer. */
interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
  text: string;
  job: number;
}

interface Patch {
  job: JobPicture;
  loads: number[];
  columns: number;
}

function patchOf(job: JobPicture): Patch {
  const loads = parseLoads(job.loads);
  return { job, loads, columns: Math.max(1, Math.ceil(Math.sqrt(loads.length))) };
}

function words(load: number): string {
  return load === UNKNOWN ? "not known" : `${load} %`;
}

export class Grid implements View {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "grid", role: "img", tabindex: "0" });
  private readonly tip = el("p", { class: "tip", role: "status" });
  private readonly solidButton = button("3D (d)", () => this.toggle());
  private solid = localStorage.getItem("solid") === "yes";
  private last: Picture | null = null;
  private places: Place[] = [];
  private readonly resized = new ResizeObserver(() => this.draw());

  constructor() {
    const legend = el("span", { class: "legend" }, "0 % ", el("span", { class: "scale" }), " 100 %");
    this.element = el("section", { "aria-label": "Load of ranks" },
      el("div", { class: "tools" }, this.solidButton, legend, this.tip), this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => this.open(event));
    this.resized.observe(this.canvas);
    this.mark();
  }

  picture(picture: Picture): void {
    this.last = picture;
    this.draw();
  }

  key(key: string): boolean {
    if (key !== "d") return false;
    this.toggle();
    return true;
  }

  close(): void {
    this.resized.disconnect();
  }

  private mark(): void {
    this.solidButton.setAttribute("aria-pressed", String(this.solid));
  }

  private toggle(): void {
    this.solid = !this.solid;
    localStorage.setItem("solid", this.solid ? "yes" : "no");
    this.mark();
    this.draw();
  }

  private under(event: MouseEvent): Place | undefined {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const inside = (place: Place) =>
      x >= place.x && x < place.x + place.width && y >= place.y && y < place.y + place.height;
    // What was drawn last is in front.
    return this.places.findLast(inside);
  }

  private point(event: MouseEvent): void {
    this.tip.textContent = this.under(event)?.text ?? "";
  }

  private open(event: MouseEvent): void {
    const place = this.under(event);
    if (place) location.hash = `#/job/${place.job}`;
  }

  private draw(): void {
    if (!this.last) return;
    const patches = this.last.jobs.map(patchOf);
    const said = patches.map(({ job, loads }) => {
      const mean = meanLoad(loads);
      return `job ${job.job} ${job.name}: ${loads.length} ranks, ${mean === null ? "load not known" : `load ${mean.toFixed(0)} %`}`;
    });
    this.canvas.setAttribute("aria-label", said.length ? said.join("; ") : "No job runs");
    this.places = [];
    if (patches.length === 0) this.drawNothing();
    else if (this.solid) this.drawSolid(patches);
    else this.drawFlat(patches);
  }

  private drawNothing(): void {
    const drawing = fit(this.canvas, 120);
    if (!drawing) return;
    const [context] = drawing;
    context.fillStyle = themed("--dim");
    context.font = "15px system-ui, sans-serif";
    context.fillText("No job runs.", 12, 40);
  }

  private placed({ job, loads }: Patch, rank: number): string {
    const part = job.parts.find(([, first, count]) => rank >= first && rank < first + count);
    const node = part ? `, node ${part[0]}` : "";
    return `job ${job.job} ${job.name}, rank ${rank}${node}: ${words(loads[rank] ?? UNKNOWN)}`;
  }

  /** A bar in a cell for each rank. */
  private drawFlat(patches: Patch[]): void {
    const width = Math.max(this.canvas.clientWidth, 50);
    const most = Math.max(...patches.map((patch) => patch.loads.length));
    const cell = most > 1024 ? 10 : most > 256 ? 16 : 28;
    const across = Math.max(1, Math.floor((width - 8) / cell));
    const rows = (patch: Patch) => Math.ceil(patch.loads.length / across);
    const height = patches.reduce((sum, patch) => sum + 26 + rows(patch) * cell + 8, 8);
    const drawing = fit(this.canvas, height);
    if (!drawing) return;
    const [context] = drawing;
    context.font = "13px system-ui, sans-serif";
    let top = 4;
    for (const patch of patches) {
      const { job, loads } = patch;
      const mean = meanLoad(loads);
      context.fillStyle = themed("--text");
      const load = job.idle ? "idle" : mean === null ? "" : `${mean.toFixed(0)} %`;
      context.fillText(`job ${job.job} ${job.name}  ${loads.length} ranks  ${load}`, 6, top + 16);
      top += 24;
      loads.forEach((load, rank) => {
        const [x, y] = [4 + (rank % across) * cell, top + Math.floor(rank / across) * cell];
        const inner = cell - 2;
        context.fillStyle = themed("--cell");
        context.fillRect(x, y, inner, inner);
        const tall = load === UNKNOWN ? inner / 4 : Math.max(2, (inner * load) / 100);
        context.fillStyle = loadColour(load);
        context.fillRect(x, y + inner - tall, inner, tall);
        this.places.push({ x, y, width: cell, height: cell, text: this.placed(patch, rank), job: job.job });
      });
      top += rows(patch) * cell + 10;
    }
  }

  /** Blocks that stand on floors, a floor for each job. */
  private drawSolid(patches: Patch[]): void {
    const width = Math.max(this.canvas.clientWidth, 50);
    const deep = (patch: Patch) => Math.ceil(patch.loads.length / patch.columns);
    const largest = Math.max(...patches.map((patch) => patch.columns + deep(patch)));
    const unit = Math.min(34, (width - 40) / (largest * ACROSS));
    const high = Math.max(unit * 2.4, 40);
    // Floors stand in lines, as words do.
    let [x, y, line] = [10, 0, 0];
    const floors = patches.map((patch) => {
      const [wide, tall] = [(patch.columns + deep(patch)) * unit * ACROSS, (patch.columns + deep(patch)) * unit * DOWN];
      if (x > 10 && x + wide > width) [x, y, line] = [10, y + line, 0];
      const place = { patch, x: x + deep(patch) * unit * ACROSS, y: y + high + 10 };
      [x, line] = [x + Math.max(wide, 90) + 16, Math.max(line, high + tall + 44)];
      return place;
    });
    const drawing = fit(this.canvas, Math.ceil(y + line));
    if (!drawing) return;
    const [context] = drawing;
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    for (const { patch, x, y } of floors) {
      const at: Projection = (right, front, up) => [x + (right - front) * unit * ACROSS, y + (right + front) * unit * DOWN - up];
      this.drawFloor(context, at, patch, unit, high);
    }
    context.textAlign = "start";
  }

  private drawFloor(context: CanvasRenderingContext2D, at: Projection, patch: Patch, unit: number, high: number): void {
    const { loads, columns, job } = patch;
    const rows = Math.ceil(loads.length / columns);
    floor(context, at, columns, rows);
    loads.forEach((load, rank) => {
      const [x, y] = [rank % columns, Math.floor(rank / columns)];
      const tall = load === UNKNOWN ? 2 : 2 + (high * load) / 100;
      block(context, at, x, y, tall, load);
      const [px, py] = at(x + 0.5, y + 0.5, tall);
      this.places.push({ x: px - unit * 0.4, y: py - unit * 0.25, width: unit * 0.8, height: unit * 0.5 + tall,
        text: this.placed(patch, rank), job: job.job });
    });
    const [lx] = at(columns / 2, rows / 2, 0);
    const [, ly] = at(columns, rows, 0);
    context.fillStyle = themed("--text");
    context.fillText(`${job.job} ${job.name}`, lx, ly + 22);
  }
}

/** How far one step leads to the side, and down, in the projection. */
const ACROSS = 0.87;
const DOWN = 0.5;

type Projection = (x: number, y: number, z: number) => [number, number];

function face(context: CanvasRenderingContext2D, colour: string, corners: [number, number][]): void {
  context.fillStyle = colour;
  context.beginPath();
  corners.forEach(([x, y], index) => (index === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.closePath();
  context.fill();
}

function floor(context: CanvasRenderingContext2D, at: Projection, columns: number, rows: number): void {
  const edge = 0.2;
  face(context, themed("--cell"), [at(-edge, -edge, 0), at(columns + edge, -edge, 0), at(columns + edge, rows + edge, 0),
    at(-edge, rows + edge, 0)]);
}

function block(context: CanvasRenderingContext2D, at: Projection, x: number, y: number, z: number, load: number): void {
  const [a, b] = [0.1, 0.9];
  face(context, loadColour(load, 70), [at(x + a, y + b, z), at(x + b, y + b, z), at(x + b, y + b, 0), at(x + a, y + b, 0)]);
  face(context, loadColour(load, 50), [at(x + b, y + a, z), at(x + b, y + b, z), at(x + b, y + b, 0), at(x + b, y + a, 0)]);
  face(context, loadColour(load, 100), [at(x + a, y + a, z), at(x + b, y + a, z), at(x + b, y + b, z), at(x + a, y + b, z)]);
}
