// The cluster as the last frames have it.  One object; who shows it is told when it has changed.
import type { Refused } from './client'
import type { Cause, Frame, NodeLists, Status, Totals } from './wire'

export interface Model {
  number: number // of the last frame; 0: none has come yet
  layout: number // grows whenever there are other nodes
  title: string
  source: string
  status: Status
  totals: Totals
  columns: Record<string, number>
  nodes: NodeLists
  values: number[][]
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
  },
  totals: { nodes: 0, placed: 0, waiting: 0, cpu: [0, 0], memory: [0, 0], gpu: [0, 0] },
  nodes: { names: [], pools: [], zones: [], blocks: [], models: [], gpus: [] },
}

export const model: Model = {
  number: 0,
  layout: 0,
  title: 'Koordinator',
  source: '',
  columns: {},
  values: [],
  waiting: [],
  isConnected: false,
  refused: null,
  hasToken: false,
  ...NOTHING,
}

export function apply(frame: Frame): boolean {
  if (frame.kind === 'full') {
    model.title = frame.title
    model.source = frame.source
    model.columns = Object.fromEntries(frame.columns.map((name, place) => [name, place]))
    model.nodes = frame.nodes
    model.values = frame.values
    model.waiting = frame.waiting
    model.layout += 1
  } else {
    if (frame.number !== model.number + 1) return false // something was lost
    for (const [row, ...values] of frame.rows) if (row !== undefined) model.values[row] = values
    if (frame.waiting) model.waiting = frame.waiting
  }
  model.number = frame.number
  model.status = frame.status
  model.totals = frame.totals
  model.isConnected = true
  model.refused = null
  return true
}

/** Return a column of a node; -1: nobody knows. */
export function valueOf(row: number, column: string): number {
  const place = model.columns[column]
  return place === undefined ? -1 : (model.values[row]?.[place] ?? -1)
}
