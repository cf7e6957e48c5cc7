// Devices over time: a lane for each GPU, a bar for each pod that uses it or a share of it.  Zoom and
// cursor are shared with the charts; arrow keys move from bar to bar.
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { span } from './chart'
import { LINES, UNKNOWN_COLOUR } from './colours'
import { axisText, count, duration, DURATION_STEPS, moment } from './format'
import type { BarJob, DeviceBar, DeviceLanes } from './wire'

interface Props {
  devices: DeviceLanes
  atS: number[] // the times of the charts on the page
  nowS: number
  isVirtual: boolean
  hasEnded?: boolean
  open?: (node: string) => void
  range?: [number, number] | null
}

interface Drawn {
  lane: number
  job: BarJob
  pod: string
  startS: number
  endS: number
  lasts: boolean
  percent: number
  why: string
  top: number // within the lane, 0..1
  height: number
}

type Grouping = 'tenant' | 'workload' | 'job' | 'quota' | 'priority'

const OTHER_TENANT = 'another tenant'
const GROUPINGS: Record<Grouping, (job: BarJob) => string> = {
  tenant: (job) => job.namespace || OTHER_TENANT,
  workload: (job) => job.workload || OTHER_TENANT,
  job: (job) => job.name || OTHER_TENANT,
  quota: (job) => job.quota || 'no quota',
  priority: (job) => `priority ${job.priority}`,
}

const HEIGHT = 560
const [MIN_LANE, MAX_LANE] = [3, 20]
const LABEL_HEIGHT = 13
const END = 3 // width in pixels of the mark at the end of an evicted pod

export function Bars(props: Props): JSX.Element {
  const { devices, isVirtual } = props
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const isZoomed = useRef(false)
  const range = useRef(props.range ?? null)
  range.current = props.range ?? null
  const [by, setBy] = useState<Grouping>(new Set(devices.jobs.map((one) => one.namespace)).size > 1 ? 'tenant' : 'workload')
  const [chosen, setChosen] = useState<Drawn | null>(null)
  const bars = laidOut(devices, props.nowS)
  const colours = coloursOf(bars, by)
  const laneHeight = Math.min(MAX_LANE, Math.max(MIN_LANE, Math.floor(HEIGHT / Math.max(1, devices.lanes.length))))
  const height = laneHeight * devices.lanes.length + 42
  const latest = useRef({ bars, colours, chosen, devices, by })
  latest.current = { bars, colours, chosen, devices, by }
  const structure = JSON.stringify([devices.lanes, isVirtual])
  const times = props.atS.length > 1 ? props.atS : [Math.min(props.nowS, ...bars.map((one) => one.startS)), props.nowS]

  useEffect(() => {
    const box = place.current
    if (!box) return undefined
    const style = getComputedStyle(box)
    const ink = (): string => style.color
    const line = (): string => style.getPropertyValue('--line')
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
    const labels = labelsOf(devices, laneHeight)
    const made = new uPlot(
      {
        width: box.clientWidth || 300,
        height,
        cursor: { sync: { key: 'time' }, y: false, points: { show: false } },
        legend: { show: false },
        scales: { x: { time: !isVirtual, range: (_, min, max) => range.current ?? span(min, max) }, y: { range: [0, devices.lanes.length], dir: -1 } },
        axes: [
          {
            ...axis,
            size: 30,
            ...(isVirtual
              ? { incrs: DURATION_STEPS, values: (_: uPlot, at: number[]) => at.map((one, row) => axisText(one, at[row + 1] ?? one, at[row - 1] ?? 0)) }
              : {}),
          },
          {
            ...axis,
            size: box.clientWidth < 500 ? 62 : 110,
            splits: () => labels.map((one) => one.at),
            values: () => labels.map((one) => short(one.text, box.clientWidth < 500 ? 8 : 15)),
          },
        ],
        series: [{}, { paths: () => null, points: { show: false } }],
        hooks: {
          setSelect: [() => (isZoomed.current = true)],
          ready: [(it) => it.over.addEventListener('dblclick', () => (isZoomed.current = false))],
          setCursor: [
            (it) => {
              if (it.cursor.event) setChosen(barAt(it, latest.current.bars))
            },
          ],
          draw: [(it) => draw(it, latest.current, style)],
        },
      },
      [times, times.map(() => null)],
      box,
    )
    plot.current = made
    const observer = new ResizeObserver(() => box.clientWidth > 0 && made.setSize({ width: box.clientWidth, height }))
    const repaint = (): void => made.redraw()
    observer.observe(box)
    window.addEventListener('koord-theme', repaint)
    return () => {
      observer.disconnect()
      window.removeEventListener('koord-theme', repaint)
      made.destroy()
    }
  }, [structure])

  useEffect(() => {
    plot.current?.setData([times, times.map(() => null)], !isZoomed.current)
    if (isZoomed.current) plot.current?.redraw()
  }, [devices, props.atS, structure])
  useEffect(() => plot.current?.redraw(false), [by, chosen])
  useEffect(() => {
    isZoomed.current = false
    plot.current?.setData(plot.current.data, true)
  }, [props.range?.[0], props.range?.[1]])

  const keys = (event: KeyboardEvent): void => {
    const made = plot.current
    if (event.key === 'Escape' && made && isZoomed.current) {
      event.stopPropagation()
      isZoomed.current = false
      made.setData(made.data, true)
    }
    const next = neighbour(bars, chosen, event.key)
    if (event.key === 'Enter' && chosen) props.open?.(nodeOf(devices, chosen))
    if (!next) return
    event.preventDefault()
    setChosen(next)
  }
  const shown = [...colours].filter(([, colour]) => colour !== UNKNOWN_COLOUR)
  const others = colours.size - shown.length
  return (
    <figure class="chart bars">
      <figcaption>
        <h3>GPUs over time</h3>
        <label>
          <span class="dim">coloured by</span>{' '}
          <select value={by} onChange={(event) => setBy(event.currentTarget.value as Grouping)}>
            {Object.keys(GROUPINGS).map((one) => (
              <option value={one}>{one}</option>
            ))}
          </select>
        </label>
        <p class="dim">
          A lane for each GPU, a bar for each pod that uses it; a red end marks an eviction.
          {devices.sinceS !== null && ` Bars that ended before ${moment(devices.sinceS, isVirtual)} were dropped.`}
        </p>
      </figcaption>
      <ul class="legend">
        {shown.map(([name, colour]) => (
          <li key={name}>
            <i style={{ background: colour }} />
            {name}
          </li>
        ))}
        {others > 0 && (
          <li>
            <i style={{ background: UNKNOWN_COLOUR }} />
            {count(others)} others
          </li>
        )}
      </ul>
      <div
        ref={place}
        class="plot"
        tabIndex={0}
        role="application"
        aria-label={`GPUs over time: ${count(devices.lanes.length)} GPUs, ${count(bars.length)} bars; arrow keys read out`}
        onKeyDown={keys}
        onClick={() => chosen && props.open?.(nodeOf(devices, chosen))}
      />
      <p class="readout" aria-live="polite">
        {chosen ? describe(devices, chosen, isVirtual, props.hasEnded ?? false) : ' '}
      </p>
    </figure>
  )
}

/** Place concurrent shares of a device side by side in its lane. */
function laidOut(devices: DeviceLanes, nowS: number): Drawn[] {
  const drawn: Drawn[] = []
  let inLane: Drawn[] = []
  for (const [lane, number, pod, startS, endS, percent, why] of devices.bars as DeviceBar[]) {
    const job = devices.jobs[number]
    if (!job) continue
    if (inLane[0]?.lane !== lane) inLane = []
    const height = Math.min(1, Math.max(0.02, percent / 100))
    const beside = inLane.filter((one) => one.endS > startS).sort((a, b) => a.top - b.top)
    let top = 0
    for (const one of beside) if (one.top < top + height - 1e-9) top = Math.max(top, one.top + one.height)
    const bar = { lane, job, pod, startS, endS: endS ?? nowS, lasts: endS === null, percent, why, top: Math.min(top, 1 - height), height }
    inLane.push(bar)
    drawn.push(bar)
  }
  return drawn
}

/** Return a colour for each of the largest groups, and grey for all others. */
function coloursOf(bars: Drawn[], by: Grouping): Map<string, string> {
  const held = new Map<string, number>()
  for (const one of bars) {
    const name = GROUPINGS[by](one.job)
    held.set(name, (held.get(name) ?? 0) + (one.endS - one.startS) * one.height)
  }
  const names = [...held].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
  return new Map(names.map(([name], place) => [name, LINES[place] ?? UNKNOWN_COLOUR]))
}

interface Label {
  at: number
  text: string
}

/** Return the labels of nodes at their first lanes; labels without room are left out. */
function labelsOf(devices: DeviceLanes, laneHeight: number): Label[] {
  const found: Label[] = []
  devices.lanes.forEach(([node], lane) => {
    const isFirst = devices.lanes[lane - 1]?.[0] !== node
    const last = found[found.length - 1]
    if (isFirst && (last === undefined || (lane - last.at) * laneHeight >= LABEL_HEIGHT)) found.push({ at: lane, text: node })
  })
  return found
}

function short(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, 4)}…${text.slice(5 - most)}` : text
}

function draw(made: uPlot, now: { bars: Drawn[]; colours: Map<string, string>; chosen: Drawn | null; by: Grouping }, style: CSSStyleDeclaration): void {
  const { ctx, bbox } = made
  const y = (lane: number): number => made.valToPos(lane, 'y', true)
  const x = (at: number): number => Math.min(Math.max(made.valToPos(at, 'x', true), bbox.left), bbox.left + bbox.width)
  const gap = y(1) - y(0) >= 6 ? devicePixelRatio : 0
  const bad = style.getPropertyValue('--bad')
  ctx.save()
  for (const one of now.bars) {
    const [left, right] = [x(one.startS), x(one.endS)]
    if (right <= bbox.left || left >= bbox.left + bbox.width) continue
    const top = y(one.lane + one.top) + gap / 2
    const height = y(one.lane + one.top + one.height) - top - gap / 2
    const width = Math.max(right - left - gap, 1)
    ctx.fillStyle = now.colours.get(GROUPINGS[now.by](one.job)) ?? UNKNOWN_COLOUR
    ctx.fillRect(left, top, width, height)
    if (one.why) {
      ctx.fillStyle = bad
      ctx.fillRect(left + width - Math.min(END * devicePixelRatio, width), top, Math.min(END * devicePixelRatio, width), height)
    }
    if (isSame(one, now.chosen)) {
      ctx.strokeStyle = style.getPropertyValue('--ink')
      ctx.lineWidth = 2 * devicePixelRatio
      ctx.strokeRect(left, top, width, height)
    }
  }
  ctx.restore()
}

function barAt(made: uPlot, bars: Drawn[]): Drawn | null {
  const { left, top } = made.cursor
  if (left === undefined || top === undefined || left < 0 || top < 0) return null
  const [at, lane] = [made.posToVal(left, 'x'), made.posToVal(top, 'y')]
  return bars.find((one) => at >= one.startS && at <= one.endS && lane >= one.lane + one.top && lane < one.lane + one.top + one.height) ?? null
}

/** Return the neighbour of a bar: before or after it in its lane, or in the next lane with bars. */
function neighbour(bars: Drawn[], from: Drawn | null, key: string): Drawn | null {
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 }
  const lanes: Record<string, number> = { ArrowUp: -1, ArrowDown: 1 }
  if (key === 'Home' || (!from && (key in steps || key in lanes))) return bars[0] ?? null
  if (key === 'End') return bars[bars.length - 1] ?? null
  const now = bars.findIndex((one) => isSame(one, from))
  const here = bars[now]
  if (!here) return null
  const step = steps[key]
  if (step !== undefined) return bars[now + step]?.lane === here.lane ? (bars[now + step] ?? null) : null
  const down = lanes[key]
  if (down === undefined) return null
  const beyond = down > 0 ? bars.filter((one) => one.lane > here.lane) : bars.filter((one) => one.lane < here.lane).reverse()
  const lane = beyond[0]?.lane
  const distance = (one: Drawn): number => Math.abs(one.startS - here.startS)
  return beyond.filter((one) => one.lane === lane).sort((a, b) => distance(a) - distance(b))[0] ?? null
}

function isSame(one: Drawn, other: Drawn | null): boolean {
  return other !== null && one.lane === other.lane && one.pod === other.pod && one.startS === other.startS
}

function nodeOf(devices: DeviceLanes, bar: Drawn): string {
  return devices.lanes[bar.lane]?.[0] ?? ''
}

function describe(devices: DeviceLanes, bar: Drawn, isVirtual: boolean, hasEnded: boolean): string {
  const [node, minor] = devices.lanes[bar.lane] ?? ['', 0]
  const who = bar.pod ? `${bar.pod}${bar.job.name && bar.job.name !== bar.pod ? `, of ${bar.job.name}` : ''}` : 'a pod of another tenant'
  const until = bar.lasts ? (hasEnded ? 'to the end' : 'until now') : `to ${moment(bar.endS, isVirtual)}`
  const part = bar.percent < 100 ? `, ${bar.percent} % of it` : ''
  const why = bar.why ? `; evicted: ${bar.why}` : ''
  return `${node} GPU ${minor}: ${who}${part}, from ${moment(bar.startS, isVirtual)} ${until} (${duration(bar.endS - bar.startS)})${why}`
}
