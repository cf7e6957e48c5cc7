// Data of the server: see koordinator/dashboard/frames.py, queries.py, attention.py, whatif.py;
// and of result files: koordinator/simulator/page.py.
import type { ChartData, Mark } from './chart'

export type Phase = 'loading' | 'live' | 'paused' | 'ended' | 'lost'

export interface Status {
  phase: Phase
  nowS: number
  problem: string
  fromS: number | null
  toS: number | null
  speed: number | null
  canSeek: boolean
  isVirtual: boolean
  hasReport: boolean
}

export type Pair = [number, number] // used, total

export interface Totals {
  nodes: number
  placed: number
  waiting: number
  causes: number // of pending pods; a frame has those with the most pods
  cpu: Pair
  memory: Pair
  gpu: Pair
}

export interface NamedPod {
  pod: string
  sinceS: number
  position: number
  state: string
  priority?: number
  attempts?: number
  gang?: string
}

export interface Cause {
  cause: string
  plugins: string[]
  pods: number
  oldestS: number
  namespaces: string[]
  gangs: number
  named: NamedPod[]
  help?: string
}

export interface NodeLists {
  names: string[]
  pools: string[]
  zones: string[]
  blocks: string[]
  models: string[]
  gpus: number[]
}

export interface TimelineData {
  atS: number[]
  cpu: number[]
  memory: number[]
  gpu: number[]
  placed: number[]
  causes: Record<string, number[]>
  marks?: Mark[]
  other?: TimelineData & { title: string }
}

export interface BarJob {
  name: string
  namespace: string
  quota: string
  priority: number
  workload: string
}

/** Lane, index of the job, pod, start, end or null, percent of the device, reason of an eviction. */
export type DeviceBar = [number, number, string, number, number | null, number, string]

export interface DeviceLanes {
  first: number
  count: number
  sinceS: number | null
  lanes: [string, number][]
  jobs: BarJob[]
  bars: DeviceBar[]
}

export interface FullFrame {
  kind: 'full'
  number: number
  title: string
  source: 'manifests' | 'simulation' | 'recording' | 'cluster'
  status: Status
  totals: Totals
  columns: string[]
  nodes: NodeLists
  values: number[][]
  waiting: Cause[]
}

export interface DeltaFrame {
  kind: 'delta'
  number: number
  status: Status
  totals: Totals
  rows: number[][]
  waiting?: Cause[]
}

/** Number of namespaces whose review is pending. */
export interface RightsFrame {
  kind: 'rights'
  unasked: number
}

export type Frame = FullFrame | DeltaFrame | RightsFrame

export interface CauseReport {
  plugin: string
  reason: string
  nodes?: number
  decisive?: boolean
  sentence?: string
  detail?: string
  on?: string[]
}

export interface Explanation {
  pod: string
  verdict: string
  summary: string
  node?: string
  causes?: CauseReport[]
  gang?: string
  nearest?: { node: string; reasons: string[]; lacks?: Record<string, string>; details?: string[]; hopeless?: boolean }[]
  emptyCluster?: { fits: boolean; node?: string; why?: string }
  remedies?: { kind: string; text: string; sufficient?: boolean; tried?: boolean }[]
  queue?: { state: string; position: number; ahead?: string[]; since?: string; attempts?: number; retryAt?: string; wokenBy?: string[] }
  lastMessage?: string
  scores?: { node: string; total: number; plugins: Record<string, number> }[]
}

export interface Forecast {
  at?: string
  node?: string
  why?: string
}

export interface NodeDetails {
  name: string
  labels: Record<string, string>
  taints: string[]
  isCordoned: boolean
  conditions: { type: string; status: string; reason: string; message: string }[]
  resources: { name: string; used: string; total: string; share: number | null }[]
  numa: { zone: number; cores: [number, number][][]; resources: { name: string; used: string; total: string }[] }[]
  devices: {
    type: string
    devices: {
      minor: number
      numa: number | null
      pcie: string
      isHealthy: boolean
      holders: { pod: number; percent: number; functions: string[] }[]
    }[]
  }[]
  partitions: number[][]
  pods: { pod: string; priority: number; sinceS: number; requests: Record<string, string>; cpus: string; devices: Record<string, number[]> }[]
}

export interface Quota {
  name: string
  min: Record<string, string>
  max: Record<string, string>
  runtime: Record<string, string>
  used: Record<string, string>
  request: Record<string, string>
  borrows: { from: string; resource: string; amount: string }[]
  waitingPods: number
  queuePolicy: string
  children: Quota[]
}

export interface Quotas {
  trees: { id: string; total: Record<string, string>; quotas: Quota[] }[]
  warnings: string[]
  isOn: boolean
}

export interface Gang {
  gang: string
  phase: string
  minMember: number
  total: number
  present: number
  bound: number
  running: number
  mode: string
  why: string
  queuePosition: number | null
  queueReason: string
  complaints: string[]
  network: { layer: string; strategy?: string; domains: Record<string, number> }[]
  members: { pod: string; state: string; phase: string; node: string; domain: string; why: string }[]
}

export interface Attention {
  items: { severity: 'error' | 'warning'; topic: string; about: string; text: string; sinceS: number | null }[]
  notLookedAt: Record<string, string>
}

export interface WhatIf {
  placedBefore: number
  placedAfter: number
  waitingBefore: number
  waitingAfter: number
  evictedAfter: number
  differences: { pod: string; before: string; after: string; why: string }[]
  differ: number
}

/** Decision about pods that were scheduled together: name, node and attempt of each. */
export interface Decision {
  atS: number
  outcome: string
  pods: [string, string, number][]
  morePods: number
  node?: string
  plugin?: string
  reason?: string
  job?: string
  by?: string
  best?: { node: string; total: number; scores: Record<string, number> }[]
}

export interface DecisionSummary {
  entries: number
  fromS: number
  toS: number
  pods: Record<string, number>
  decisive: Record<string, number>
  slowest: { plugin: string; point: string; seconds: number; share: number; pods: number }[]
  rejected: { job: string; rejections: number; pods: number; plugin: string; reason: string }[]
  flapping: { node: string; closed: number; reason: string }[]
}

export interface Decisions {
  isKept: boolean
  title: string // name of the archive, or the reason why there is none
  count: number
  entries: Decision[]
  summary?: DecisionSummary
}

export interface QueuedPod extends NamedPod {
  quota: string
  cause: string
}

export interface Queue {
  pods: QueuedPod[]
  count: number
}

export interface Policy {
  policy: string
  origin: string
}

export interface FoundPods {
  pods: { pod: string; node: string }[]
  count: number
}

export interface Gangs {
  gangs: Gang[]
  count: number
}

export interface ResultTable {
  label: string
  heads: string[]
  rows: (string | { before: number; after: number })[][]
  foot?: string[]
  hasFigures?: boolean
  leftOut?: number
}

export interface ResultSection {
  title: string
  text?: string
  charts?: ChartData[]
  tables?: ResultTable[]
  marks?: Mark[]
  devices?: DeviceLanes
  isFolded?: boolean
}

export interface ResultPage {
  title: string
  facts: string[]
  figures: { label: string; value: string; remark?: string }[]
  sections: ResultSection[]
}
