// State of the cluster after the last frame, in one mutable object.
import type { Refused } from './client'
import type { Cause, Frame, NodeLists, Status, Totals } from './wire'

export interface Model {
  number: number // of the last frame; 0 before the first
  layout: number // incremented when the set of nodes changes
  title: string
  source: string
  status: Status
  totals: Totals
  columns: Record<string, number>
  width: number // number of columns
  nodes: NodeLists
  values: Int32Array // row-major, one row per node
  unasked: number // namespaces whose review is pending
  waiting: Cause[]
  isConnected: boolean
  refused: Refused | null
  hasToken: boolean
}

const NOTHING: Pick<Model, 'status' | 'totals' | 'nodes'> = {
  status: {
    phase: 'loading',
    nowS: 0,
    problem: '',
    fromS: null,
    toS: null,
    speed: null,
    canSeek: false,
    isVirtual: false,
    hasReport: false,
  },
  totals: { nodes: 0, placed: 0, waiting: 0, causes: 0, cpu: [0, 0], memory: [0, 0], gpu: [0, 0] },
  nodes: { names: [], pools: [], zones: [], blocks: [], models: [], gpus: [] },
}

export const model: Model = {
  number: 0,
  layout: 0,
  title: 'Koordinator',
  source: '',
  columns: {},
  width: 0,
  values: new Int32Array(0),
  unasked: 0,
  waiting: [],
  isConnected: false,
  refused: null,
  hasToken: false,
  ...NOTHING,
}

export function apply(frame: Frame): boolean {
  if (frame.kind === 'rights') {
    model.unasked = frame.unasked
    return true
  }
  if (frame.kind === 'full') {
    model.title = frame.title
    model.source = frame.source
    model.columns = Object.fromEntries(frame.columns.map((name, place) => [name, place]))
    // The stream restarts at intervals; an unchanged layout keeps the zoom of the map.
    if (JSON.stringify(frame.nodes) !== JSON.stringify(model.nodes)) {
      model.nodes = frame.nodes
      model.layout += 1
    }
    const width = (model.width = frame.columns.length)
    model.values = new Int32Array(frame.values.length * width)
    frame.values.forEach((values, row) => model.values.set(values, row * width))
    model.waiting = frame.waiting
  } else {
    if (frame.number !== model.number + 1) return false // a frame was lost
    const { width } = model
    for (const changed of frame.rows) {
      const start = (changed[0] ?? 0) * width
      for (let place = 0; place < width; place += 1) model.values[start + place] = changed[place + 1] ?? -1
    }
    if (frame.waiting) model.waiting = frame.waiting
  }
  model.number = frame.number
  model.status = frame.status
  model.totals = frame.totals
  model.isConnected = true
  model.refused = null
  return true
}

/** Return a column of a node; -1 if unknown. */
export function valueOf(row: number, column: string): number {
  const place = model.columns[column]
  return place === undefined ? -1 : (model.values[row * model.width + place] ?? -1)
}
