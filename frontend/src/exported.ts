// Charts as files: CSV for spreadsheets, SVG for documents. Both have what the chart shows: series
// that are not hidden, within the chosen range.
import { LINES } from './colours'
import { inUnit, moment, type Unit } from './format'

export interface ExportedChart {
  title: string
  unit: Unit
  isStacked: boolean
  isVirtual: boolean
  atS: number[]
  series: { name: string; tone: number; isDashed: boolean; values: (number | null | undefined)[] }[]
}

/** Return one line for each moment: ISO 8601, or seconds of a virtual time, then a column for each series. */
export function toCsv(chart: ExportedChart): string {
  const heads = [chart.isVirtual ? 'seconds' : 'time', ...chart.series.map((one) => one.name)]
  const rows = chart.atS.map((atS, row) => [
    chart.isVirtual ? String(atS) : new Date(atS * 1000).toISOString(),
    ...chart.series.map((one) => String(one.values[row] ?? '')),
  ])
  return [heads, ...rows].map((cells) => cells.map(quoted).join(',')).join('\r\n') + '\r\n'
}

/** Quote a cell; a spreadsheet takes text that begins with one of these signs for a formula. */
function quoted(cell: string): string {
  const isFormula = /^[=+@\t]|^-(?!\d)/.test(cell)
  const text = isFormula ? `'${cell}` : cell
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP] = [800, 300, 70, 20, 40]
const ROW = 18 // pixels of a line of the legend

export function toSvg(chart: ExportedChart): string {
  const { atS, series } = chart
  const [from = 0, to = from] = [atS[0], atS[atS.length - 1]]
  const curves = chart.isStacked ? stacked(chart) : series.map((one) => one.values)
  const most = Math.max(0, ...curves.flatMap((values) => values.map((value) => value ?? 0)))
  const top = most > 0 ? most * 1.05 : 1
  const x = (at: number): string => (LEFT + ((WIDTH - LEFT - RIGHT) * (at - from)) / (to - from || 1)).toFixed(1)
  const y = (value: number): string => (TOP + HEIGHT * (1 - value / top)).toFixed(1)
  const parts = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const value = share * most
    return `<path d="M${LEFT} ${y(value)}H${WIDTH - RIGHT}" stroke="#d5d9de"/><text x="${LEFT - 6}" y="${y(value)}" dy="4" text-anchor="end">${escaped(inUnit(value, chart.unit, chart.unit !== 'seconds'))}</text>`
  })
  const bottom = TOP + HEIGHT
  ;[from, (from + to) / 2, to].forEach((at, place) => {
    const anchor = ['start', 'middle', 'end'][place]
    parts.push(`<text x="${x(at)}" y="${bottom + 18}" text-anchor="${anchor}">${escaped(moment(at, chart.isVirtual))}</text>`)
  })
  series.forEach((one, place) => {
    const colour = LINES[one.tone % LINES.length] ?? '#888'
    const values = curves[place] ?? []
    for (const run of runsOf(values)) {
      const line = run.map((row) => `${x(atS[row] ?? 0)} ${y(values[row] ?? 0)}`).join('L')
      const [first = 0, last = 0] = [run[0], run[run.length - 1]]
      if (chart.isStacked && !one.isDashed) parts.push(`<path d="M${line}L${x(atS[last] ?? 0)} ${bottom}L${x(atS[first] ?? 0)} ${bottom}Z" fill="${colour}"/>`)
      else parts.push(`<path d="M${line}" fill="none" stroke="${colour}" stroke-width="1.5"${one.isDashed ? ' stroke-dasharray="6 5"' : ''}/>`)
    }
    const at = bottom + 34 + ROW * place
    parts.push(`<path d="M${LEFT} ${at}h12" stroke="${colour}" stroke-width="10"/><text x="${LEFT + 18}" y="${at + 4}">${escaped(one.name)}</text>`)
  })
  const height = bottom + 34 + ROW * series.length
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12" fill="#1c2024"><rect width="100%" height="100%" fill="#fff"/><text x="${LEFT}" y="22" font-size="15" font-weight="600">${escaped(chart.title)}</text>${parts.join('')}</svg>\n`
}

/** Return the upper edges of areas; the first series is the highest. */
function stacked(chart: ExportedChart): (number | null | undefined)[][] {
  const own = chart.series.filter((one) => !one.isDashed)
  return chart.series.map((one) => {
    if (one.isDashed) return one.values
    const below = own.slice(own.indexOf(one))
    return chart.atS.map((_, row) => (one.values[row] === undefined ? undefined : below.reduce((sum, each) => sum + (each.values[row] ?? 0), 0)))
  })
}

/** Return the rows of each unbroken part of a curve; a moment without a sample does not break it. */
function runsOf(values: (number | null | undefined)[]): number[][] {
  const runs: number[][] = [[]]
  values.forEach((value, row) => {
    if (value === null) runs.push([])
    else if (value !== undefined) runs[runs.length - 1]?.push(row)
  })
  return runs.filter((run) => run.length > 0)
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

/** Have the browser keep a text as a file. */
export function keep(text: string, type: string, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = name
  link.click()
  URL.revokeObjectURL(link.href)
}

export function fileName(title: string, suffix: string): string {
  return `${title.replace(/[^\w.-]+/g, '-')}.${suffix}`
}
