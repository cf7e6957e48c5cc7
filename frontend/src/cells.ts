// Painter of the map's cells.  A change of some nodes draws only their cells.  A moved map is drawn as
// one enlarged picture with a pixel per node, with the gaps cleared, in a time independent of the
// number of nodes.
import { COLOURS, isPale } from './colours'
import type { Layout, View } from './layout'

export const DIM = 64 // added to the tone of a cell that does not match the filter
const FAINT = 0.12
const NAMED_FROM = 60 // pixels of a cell

/** Text style on the map. */
export interface Ink {
  colour: string
  font: string
}

/** RGBA pixel of each tone, followed from ``DIM`` by the faint tones. */
const PIXELS = new Uint32Array(2 * DIM)
COLOURS.forEach((colour, tone) => {
  const [red, green, blue, alpha] = bytesOf(colour)
  for (const [place, share] of [[tone, 1], [tone + DIM, FAINT]] as const)
    PIXELS[place] = new Uint32Array(new Uint8ClampedArray([red, green, blue, alpha * share]).buffer)[0] ?? 0
})

function bytesOf(colour: string): [number, number, number, number] {
  const short = colour.length < 6
  const parts = colour.slice(1).match(short ? /./g : /../g) ?? []
  const [red = 0, green = 0, blue = 0, alpha = 255] = parts.map((part) => parseInt(short ? part + part : part, 16))
  return [red, green, blue, alpha]
}

export class CellPainter {
  private drawn: { canvas: HTMLCanvasElement; layout: Layout; view: View; ink: Ink; ratio: number } | null = null
  private tones = new Uint8Array(0) // tones in ``picture``
  private picture: { canvas: HTMLCanvasElement; pixels: ImageData; words: Uint32Array } | null = null
  private layout: Layout | null = null // of the picture

  /** Draw the differences from the last call; ``tones`` are by node row. */
  paint(canvas: HTMLCanvasElement, layout: Layout, view: View, tones: Uint8Array, names: string[], ink: Ink): void {
    const ratio = window.devicePixelRatio || 1
    const changed = this.update(layout, tones)
    const before = this.drawn
    const isSame =
      before?.canvas === canvas &&
      before.layout === layout &&
      before.view === view &&
      before.ink.colour === ink.colour &&
      before.ink.font === ink.font &&
      before.ratio === ratio
    if (isSame && changed.length === 0) return
    const pen = canvas.getContext('2d')
    if (!pen) return
    const side = layout.cell - layout.gap
    const isNamed = side * view.scale >= NAMED_FROM
    if (!isSame || isNamed || changed.length > layout.x.length / 4) {
      resize(canvas, layout, ratio)
      this.drawAll(pen, layout, view, ratio, ink)
      if (isNamed) this.name(pen, layout, view, names, ink)
      this.drawn = { canvas, layout, view, ink, ratio }
      return
    }
    place(pen, view, ratio)
    for (const row of changed) {
      const [x, y, tone] = [layout.x[row] ?? 0, layout.y[row] ?? 0, tones[row] ?? 0]
      pen.clearRect(x, y, side, side)
      pen.globalAlpha = tone >= DIM ? FAINT : 1
      pen.fillStyle = COLOURS[tone % DIM] ?? ''
      pen.fillRect(x, y, side, side)
    }
    pen.globalAlpha = 1
  }

  /** Update the picture; return the rows whose tone has changed. */
  private update(layout: Layout, tones: Uint8Array): number[] {
    if (layout !== this.layout || tones.length !== this.tones.length) {
      this.layout = layout
      this.tones = new Uint8Array(tones.length).fill(255)
      this.picture = null
    }
    const changed: number[] = []
    for (let row = 0; row < tones.length; row += 1) if (tones[row] !== this.tones[row]) changed.push(row)
    if (changed.length === 0) return changed
    const picture = (this.picture ??= pictureOf(layout))
    for (const row of changed) {
      const tone = tones[row] ?? 0
      this.tones[row] = tone
      picture.words[(layout.line[row] ?? 0) * layout.perRow + (layout.column[row] ?? 0)] = PIXELS[tone] ?? 0
    }
    picture.canvas.getContext('2d')?.putImageData(picture.pixels, 0, 0)
    return changed
  }

  private drawAll(pen: CanvasRenderingContext2D, layout: Layout, view: View, ratio: number, ink: Ink): void {
    pen.setTransform(1, 0, 0, 1, 0, 0)
    pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height)
    place(pen, view, ratio)
    const { cell, gap } = layout
    const [right, bottom] = [view.x + layout.width / view.scale, view.y + layout.height / view.scale]
    pen.imageSmoothingEnabled = false
    pen.font = `${12 / Math.sqrt(view.scale)}px ${ink.font}`
    pen.fillStyle = ink.colour
    for (const group of layout.groups) {
      const { top, line, lines, columns } = group
      if (top > bottom || top + lines * cell < view.y - 40) continue
      pen.fillText(group.title, 0, top - 6)
      if (this.picture) pen.drawImage(this.picture.canvas, 0, line, columns, lines, 0, top, columns * cell, lines * cell)
      for (let n = Math.floor(view.x / cell); n < columns && n * cell < right; n += 1)
        pen.clearRect((n + 1) * cell - gap, top, gap, lines * cell)
      for (let n = Math.max(0, Math.floor((view.y - top) / cell)); n < lines && top + n * cell < bottom; n += 1)
        pen.clearRect(0, top + (n + 1) * cell - gap, columns * cell, gap)
    }
  }

  private name(pen: CanvasRenderingContext2D, layout: Layout, view: View, names: string[], ink: Ink): void {
    const side = layout.cell - layout.gap
    const [right, bottom] = [view.x + layout.width / view.scale, view.y + layout.height / view.scale]
    pen.font = `${11 / view.scale}px ${ink.font}`
    for (let row = 0; row < layout.x.length; row += 1) {
      const [x, y, tone] = [layout.x[row] ?? 0, layout.y[row] ?? 0, this.tones[row] ?? 0]
      if (x > right || y > bottom || x + side < view.x || y + side < view.y) continue
      pen.globalAlpha = tone >= DIM ? FAINT : 1
      pen.fillStyle = isPale(tone % DIM) ? '#000' : '#fff'
      pen.fillText(names[row] ?? '', x + 3 / view.scale, y + 14 / view.scale, side - 6 / view.scale)
    }
    pen.globalAlpha = 1
  }
}

function place(pen: CanvasRenderingContext2D, view: View, ratio: number): void {
  const scale = ratio * view.scale
  pen.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale)
}

function resize(canvas: HTMLCanvasElement, layout: Layout, ratio: number): void {
  const [width, height] = [Math.round(layout.width * ratio), Math.round(layout.height * ratio)]
  if (canvas.width === width && canvas.height === height) return
  canvas.width = width
  canvas.height = height
  canvas.style.width = `${layout.width}px`
  canvas.style.height = `${layout.height}px`
}

function pictureOf(layout: Layout): { canvas: HTMLCanvasElement; pixels: ImageData; words: Uint32Array } {
  const canvas = document.createElement('canvas')
  canvas.width = layout.perRow
  canvas.height = Math.max(1, layout.lines)
  const pixels = new ImageData(canvas.width, canvas.height)
  return { canvas, pixels, words: new Uint32Array(pixels.data.buffer) }
}
