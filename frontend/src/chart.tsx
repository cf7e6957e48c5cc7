// Charts over time: lines or stacked areas with an interactive legend; drag to zoom, double click or
// Escape to reset, arrow keys to move the cursor.
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { LINES } from './colours'
import { fileName, keep, toCsv, toSvg, type ExportedChart } from './exported'
import { axisText, DURATION_STEPS, inUnit, moment, type Unit } from './format'

export interface Series {
  name: string
  values: (number | null)[]
  tone: number
}

export interface Mark {
  atS: number
  text: string
  isFailure?: boolean
}

export interface ChartData {
  title: string
  note?: string
  unit: Unit
  atS: number[]
  series: Series[]
  isStacked?: boolean
  isSmall?: boolean
}

interface Props extends ChartData {
  isVirtual: boolean
  marks?: Mark[]
  other?: { name: string; chart: ChartData } | undefined // of another run, drawn as dashed lines
  range?: [number, number] | null // in seconds; null: all that there is
}

type Values = (number | null | undefined)[]

interface Curve {
  name: string
  tone: number
  isOther: boolean
  values: Values // as sampled
}

export function Chart(props: Props): JSX.Element {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const isZoomed = useRef(false)
  const range = useRef(props.range ?? null)
  range.current = props.range ?? null
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [cursor, setCursor] = useState<number | null>(null)
  const { at, curves } = merged(props)
  const drawn = curves.map((one, place) => (props.isStacked && !one.isOther ? stacked(curves, place, hidden) : one.values))
  const isShown = (one: Curve): boolean => !hidden.has(one.name)
  const structure = JSON.stringify([curves.map((one) => [one.name, one.tone, one.isOther]), props.unit, props.isStacked, props.isVirtual])

  useEffect(() => {
    const box = place.current
    if (!box) return undefined
    const height = props.isSmall ? 130 : 220
    const made = new uPlot(
      options(props, curves, box, height, {
        zoomed: (is) => (isZoomed.current = is),
        moved: (row) => setCursor(row),
        marks: () => latest.current,
        range: () => range.current,
      }),
      [at, ...drawn] as uPlot.AlignedData,
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
    isZoomed.current = false
    plot.current?.setData(plot.current.data, true)
  }, [props.range?.[0], props.range?.[1]])

  const latest = useRef<Mark[]>([])
  latest.current = props.marks ?? []
  useEffect(() => {
    const made = plot.current
    if (!made) return
    curves.forEach((one, row) => {
      if (made.series[row + 1]?.show !== isShown(one)) made.setSeries(row + 1, { show: isShown(one) })
    })
    made.setData([at, ...drawn] as uPlot.AlignedData, !isZoomed.current)
    if (isZoomed.current) made.redraw()
  }, [props.atS, props.series, props.other, hidden, structure])

  const keys = (event: KeyboardEvent): void => {
    const made = plot.current
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key]
    if (!made || at.length === 0) return
    if (event.key === 'Escape' && isZoomed.current) {
      event.stopPropagation()
      isZoomed.current = false
      made.setData(made.data, true)
    }
    if (step === undefined) return
    event.preventDefault()
    const row = Math.min(Math.max((cursor ?? at.length - 1) + step, 0), at.length - 1)
    made.setCursor({ left: made.valToPos(at[row] ?? 0, 'x'), top: 0 })
  }
  const lastShown = props.range ? at.filter((one) => one <= (props.range?.[1] ?? Infinity)).length - 1 : at.length - 1
  const row = cursor ?? Math.max(0, lastShown)
  const shown = (): ExportedChart => {
    const { min, max } = plot.current?.scales['x'] ?? {}
    const rows = at.map((_, place) => place).filter((place) => (at[place] ?? 0) >= (min ?? -Infinity) && (at[place] ?? 0) <= (max ?? Infinity))
    const series = curves.filter(isShown).map((one) => ({ name: one.name, tone: one.tone, isDashed: one.isOther, values: rows.map((place) => one.values[place]) }))
    return { title: props.title, unit: props.unit, isStacked: props.isStacked ?? false, isVirtual: props.isVirtual, atS: rows.map((place) => at[place] ?? 0), series }
  }
  return (
    <figure class={props.isSmall ? 'chart small' : 'chart'}>
      <figcaption>
        <h3>{props.title}</h3>
        <span class="dim">{cursor === null || at[row] === undefined ? '' : `at ${moment(at[row] ?? 0, props.isVirtual)}`}</span>
        {props.note && <p class="dim">{props.note}</p>}
        <p class="export">
          <button type="button" class="link" aria-label={`${props.title} as CSV`} onClick={() => keep(toCsv(shown()), 'text/csv', fileName(props.title, 'csv'))}>
            CSV
          </button>
          <button type="button" class="link" aria-label={`${props.title} as SVG`} onClick={() => keep(toSvg(shown()), 'image/svg+xml', fileName(props.title, 'svg'))}>
            SVG
          </button>
        </p>
      </figcaption>
      <ul class="legend">
        {curves.map((one) => (
          <li key={one.name}>
            <button type="button" aria-pressed={isShown(one)} onClick={() => setHidden(toggled(hidden, one.name))}>
              <i class={one.isOther ? 'dashed' : ''} style={{ background: one.isOther ? 'none' : colour(one.tone), borderColor: colour(one.tone) }} />
              {one.name} <b>{inUnit(valueAt(one.values, row), props.unit)}</b>
            </button>
          </li>
        ))}
        {props.marks?.some((one) => one.isFailure) && (
          <li>
            <i class="tick failure" /> node failure or eviction
          </li>
        )}
        {props.marks?.some((one) => !one.isFailure) && (
          <li>
            <i class="tick" /> other event
          </li>
        )}
      </ul>
      <div
        ref={place}
        class="plot"
        tabIndex={0}
        role="application"
        aria-label={`${props.title}: ${curves.map((one) => `${one.name} ${inUnit(valueAt(one.values, at.length - 1), props.unit)}`).join(', ')}; arrow keys read out`}
        onKeyDown={keys}
        onBlur={() => setCursor(null)}
      />
    </figure>
  )
}

/** Return the curves of both runs over one time axis. */
function merged(props: Props): { at: number[]; curves: Curve[] } {
  const own = props.series.map(({ name, tone, values }) => ({ name, tone, isOther: false, values }))
  const other = props.other
  if (!other) return { at: props.atS, curves: own }
  const theirs = props.isStacked
    ? [{ name: `all, ${other.name}`, tone: 0, values: other.chart.atS.map((_, row) => sum(other.chart.series, row)) }]
    : other.chart.series
        .filter((one) => props.series.some((mine) => mine.name === one.name))
        .map((one) => ({ ...one, name: `${one.name}, ${other.name}` }))
  const [at, ...values] = uPlot.join([
    [props.atS, ...own.map((one) => one.values)],
    [other.chart.atS, ...theirs.map((one) => one.values)],
  ] as uPlot.AlignedData[])
  const all = [...own, ...theirs.map((one) => ({ ...one, isOther: true }))]
  return { at: at as number[], curves: all.map((one, row) => ({ ...one, values: (values[row] ?? []) as Values })) }
}

function sum(series: Series[], row: number): number {
  return series.reduce((total, one) => total + (one.values[row] ?? 0), 0)
}

/** Return the upper edge of a stacked area: the sum of it and the shown curves below it. */
function stacked(curves: Curve[], from: number, hidden: ReadonlySet<string>): Values {
  const below = curves.slice(from).filter((one) => !one.isOther && !hidden.has(one.name))
  return (curves[from]?.values ?? []).map((own, row) =>
    own === undefined ? undefined : below.reduce((total, one) => total + (one.values[row] ?? 0), 0),
  )
}

function toggled(hidden: ReadonlySet<string>, name: string): Set<string> {
  const others = new Set(hidden)
  if (!others.delete(name)) others.add(name)
  return others
}

/** Return the last value at or before a row; compared runs have different sample times. */
function valueAt(values: Values, row: number): number | null {
  for (let at = row; at >= 0; at -= 1) {
    const value = values[at]
    if (value !== undefined) return value
  }
  return null
}

function colour(tone: number): string {
  return LINES[tone % LINES.length] ?? '#888'
}

interface Listener {
  zoomed: (is: boolean) => void
  moved: (row: number | null) => void
  marks: () => Mark[]
  range: () => [number, number] | null
}

function options(props: Props, curves: Curve[], box: HTMLElement, height: number, listener: Listener): uPlot.Options {
  const ink = (): string => getComputedStyle(box).color
  const line = (): string => getComputedStyle(box).getPropertyValue('--line')
  const axis = { stroke: ink, font: FONT, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
  const isTime = props.unit === 'seconds'
  return {
    width: box.clientWidth || 300,
    height,
    cursor: { sync: { key: 'time' }, y: false },
    legend: { show: false },
    hooks: {
      setSelect: [() => listener.zoomed(true)],
      setCursor: [(made) => listener.moved((made.cursor.left ?? -1) < 0 ? null : (made.cursor.idx ?? null))],
      ready: [(made) => made.over.addEventListener('dblclick', () => listener.zoomed(false))],
      draw: [(made) => drawMarks(made, listener.marks(), box)],
    },
    scales: { x: { time: !props.isVirtual, range: (_, min, max) => listener.range() ?? span(min, max) }, y: { range: (_, __, max) => [0, top(max, props)] } },
    axes: [
      {
        ...axis,
        size: 30,
        ...(props.isVirtual
          ? { incrs: DURATION_STEPS, values: (_: uPlot, at: number[]) => at.map((one, row) => axisText(one, at[row + 1] ?? one, at[row - 1] ?? 0)) }
          : {}),
      },
      {
        ...axis,
        size: (_, labels) => Math.max(62, widest(labels ?? [], box)),
        values: (_, at) => at.map((one) => inUnit(one, props.unit, true)),
        ...(isTime ? { incrs: DURATION_STEPS } : {}),
        ...(props.unit === 'count' ? { incrs: WHOLE } : {}),
      },
    ],
    series: [
      {},
      ...curves.map((one) => ({
        label: one.name,
        stroke: colour(one.tone),
        width: 1.5,
        spanGaps: false,
        points: { size: 4 },
        ...(one.isOther ? { dash: [6, 5] } : {}),
        ...(props.isStacked && !one.isOther ? { fill: colour(one.tone) } : {}),
      })),
    ],
  }
}

/** Return the limits of a time axis; a single moment gets a span of one minute. */
export function span(min: number | null, max: number | null): [number | null, number | null] {
  return min !== null && min === max ? [min - 30, min + 30] : [min, max]
}

/** Return the width of an axis: its labels, ticks and gap. */
function widest(labels: (string | null)[], box: HTMLElement): number {
  const canvas = document.createElement('canvas').getContext('2d')
  if (!canvas) return 0
  canvas.font = FONT
  const font = Number.parseFloat(getComputedStyle(box).fontSize) || 12
  return Math.ceil(Math.max(0, ...labels.map((one) => canvas.measureText(one ?? '').width)) + 1.5 * font)
}

const FONT = '12px system-ui, "Segoe UI", sans-serif'
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6].map((power) => one * 10 ** power)).sort((a, b) => a - b)

function top(max: number, props: Props): number {
  if (!Number.isFinite(max) || max <= 0) return props.unit === 'share' ? 0.1 : 1
  if (props.unit === 'share') return max > 0.3 ? 1 : max * 1.1
  return Math.max(max * 1.05, props.unit === 'count' ? 1 : 0)
}

function drawMarks(made: uPlot, marks: Mark[], box: HTMLElement): void {
  const { ctx, bbox } = made
  const style = getComputedStyle(box)
  const [bad, dim] = [style.getPropertyValue('--bad'), style.getPropertyValue('--dim')]
  const drawn = new Set<string>()
  ctx.save()
  for (const one of marks) {
    const x = Math.round(made.valToPos(one.atS, 'x', true))
    const key = `${x} ${one.isFailure}`
    if (x < bbox.left || x > bbox.left + bbox.width || drawn.has(key)) continue
    drawn.add(key)
    ctx.fillStyle = one.isFailure ? bad : dim
    ctx.fillRect(x - 1, bbox.top + bbox.height - (one.isFailure ? 12 : 6), 2, one.isFailure ? 12 : 6)
  }
  ctx.restore()
}
