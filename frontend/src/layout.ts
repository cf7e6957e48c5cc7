// Layout of the map's cells: nodes by group, groups from the top.
import type { NodeLists } from './wire'

export interface Layout {
  width: number
  height: number
  cell: number
  gap: number
  perRow: number
  x: Float64Array // by row of the node
  y: Float64Array
  order: number[] // nodes in drawing order
  /** Column and line of each node over all groups: its pixel in the picture. */
  column: Uint16Array
  line: Uint32Array
  lines: number
  groups: Group[]
}

export interface Group {
  title: string
  top: number // y of its cells
  line: number // its first line
  lines: number
  columns: number
}

const TITLE = 20
const BETWEEN = 10

/** Return the layout with the largest cells that keep the map within about 900 pixels. */
export function layoutOf(nodes: NodeLists, by: string, width: number): Layout {
  const count = nodes.names.length
  const groups = new Map<string, number[]>()
  const keys = by === 'none' ? null : (nodes[by as 'pools' | 'zones' | 'blocks'] ?? null)
  for (let row = 0; row < count; row += 1) {
    const key = keys?.[row] ?? ''
    const rows = groups.get(key)
    if (rows) rows.push(row)
    else groups.set(key, [row])
  }
  const sorted = [...groups].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }))
  const room = Math.max(width, 40)
  let cell = 26
  while (cell > 6 && heightOf(sorted, Math.floor(room / cell), cell) > 900) cell -= 1
  const gap = cell > 10 ? 2 : 1
  const perRow = Math.max(1, Math.floor(room / cell))
  const layout: Layout = {
    width: room,
    height: heightOf(sorted, perRow, cell),
    cell,
    gap,
    perRow,
    x: new Float64Array(count),
    y: new Float64Array(count),
    order: [],
    column: new Uint16Array(count),
    line: new Uint32Array(count),
    lines: 0,
    groups: [],
  }
  let top = 0
  for (const [key, rows] of sorted) {
    const [line, lines] = [layout.lines, Math.ceil(rows.length / perRow)]
    const title = `${key || (by === 'none' ? 'all nodes' : 'unknown')} (${rows.length})`
    layout.groups.push({ title, top: top + TITLE, line, lines, columns: Math.min(perRow, rows.length) })
    rows.forEach((row, place) => {
      const [column, below] = [place % perRow, Math.floor(place / perRow)]
      layout.column[row] = column
      layout.line[row] = line + below
      layout.x[row] = column * cell
      layout.y[row] = top + TITLE + below * cell
      layout.order.push(row)
    })
    layout.lines += lines
    top += TITLE + lines * cell + BETWEEN
  }
  return layout
}

function heightOf(groups: [string, number[]][], perRow: number, cell: number): number {
  return groups.reduce((sum, [, rows]) => sum + TITLE + BETWEEN + Math.ceil(rows.length / Math.max(1, perRow)) * cell, 0)
}

/** Return the node at a point, -1 where there is none. */
export function nodeAt(layout: Layout, x: number, y: number): number {
  const side = layout.cell - layout.gap
  for (let row = 0; row < layout.x.length; row += 1) {
    const [left, top] = [layout.x[row] ?? 0, layout.y[row] ?? 0]
    if (x >= left && x < left + side && y >= top && y < top + side) return row
  }
  return -1
}

/** Visible part of the map: its corner, in pixels of the map, and the zoom factor. */
export interface View {
  x: number
  y: number
  scale: number
}

export const WHOLE: View = { x: 0, y: 0, scale: 1 }
const MAX_SCALE = 24

/** Return the view clamped to the map. */
export function seen(view: View, layout: Layout): View {
  const scale = Math.min(Math.max(view.scale, 1), MAX_SCALE)
  const within = (at: number, whole: number): number => Math.min(Math.max(at, 0), whole - whole / scale)
  return { scale, x: within(view.x, layout.width), y: within(view.y, layout.height) }
}

/** Return the view zoomed around a fixed point of the canvas. */
export function zoomed(view: View, factor: number, x: number, y: number, layout: Layout): View {
  const scale = Math.min(Math.max(view.scale * factor, 1), MAX_SCALE)
  return seen({ scale, x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale }, layout)
}

/** Return the point of the map under a point of the canvas. */
export function inView(view: View, x: number, y: number): [number, number] {
  return [view.x + x / view.scale, view.y + y / view.scale]
}
