// Comparison with another run: a report, a saved run, or a live run with another configuration.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { ChartData } from './chart'
import { fileName, keep } from './exported'
import { inUnit } from './format'
import { Problem, Table } from './parts'
import type { DeviceLanes, ResultPage } from './wire'

export interface OtherRun {
  title: string
  facts: string[]
  charts: ChartData[]
  devices?: DeviceLanes | undefined
}

/** Return the run in a result page. */
export function runOf(page: ResultPage): OtherRun {
  return {
    title: page.title,
    facts: page.facts,
    charts: page.sections.flatMap((one) => one.charts ?? []),
    devices: page.sections.find((one) => one.devices)?.devices,
  }
}

export function Choose(props: { other: OtherRun | null; choose: (page: ResultPage | null) => void; what: string }): JSX.Element {
  const [problem, setProblem] = useState('')
  const read = async (file: File | undefined): Promise<void> => {
    setProblem('')
    try {
      props.choose(file ? pageIn(await file.text()) : null)
    } catch {
      props.choose(null)
      setProblem(`${file?.name ?? ''} is neither a report of koord simulate or koord demo, nor a run saved by this page`)
    }
  }
  return (
    <div class="tools compare">
      <label>
        {props.what}{' '}
        <input type="file" accept=".html,.json,text/html,application/json" onChange={(event) => void read(event.currentTarget.files?.[0])} />
      </label>
      {props.other && (
        <span class="dim">
          dashed: {props.other.title}
          {props.other.facts.length > 0 && ` (${props.other.facts.join(' · ')})`}
        </span>
      )}
      <Problem text={problem} />
    </div>
  )
}

/** Return the data of a report without running its scripts.  Throws on any other file. */
function pageIn(text: string): ResultPage {
  const inHtml = text.trimStart().startsWith('{')
    ? text
    : new DOMParser().parseFromString(text, 'text/html').getElementById('results')?.textContent
  const found = JSON.parse(inHtml ?? '') as ResultPage
  if (!Array.isArray(found.sections) || !Array.isArray(found.figures) || !Array.isArray(found.facts)) throw new TypeError('not a report')
  return found
}

/** Means over the time that both runs cover. */
export function Means(props: { title: string; own: ChartData[]; other: ChartData[] }): JSX.Element {
  const rows = props.own.flatMap((chart) => {
    const theirs = props.other.find((one) => one.title === chart.title)
    if (!theirs) return []
    if (chart.isStacked) return [row(chart.title, chart, theirs, total(chart), total(theirs))]
    return chart.series.flatMap((one) => {
      const same = theirs.series.find((each) => each.name === one.name)
      return same ? [row(`${one.name} ${chart.title.toLowerCase()}`, chart, theirs, one.values, same.values)] : []
    })
  })
  return (
    <Table label="Means of both runs, table" heads={['mean of', 'here', props.title, 'difference']} tone="figures-table">
      {rows}
    </Table>
  )
}

function row(name: string, own: ChartData, other: ChartData, mine: Values, theirs: Values): JSX.Element {
  const until = Math.min(last(own.atS), last(other.atS))
  const [here, there] = [mean(own.atS, mine, until), mean(other.atS, theirs, until)]
  const text = (value: number | null): string => (own.unit === 'count' && value !== null ? value.toFixed(1) : inUnit(value, own.unit))
  const difference = here === null || there === null ? null : here - there
  const sign = difference !== null && difference > 0 ? '+' : ''
  return (
    <tr>
      <th scope="row">{name}</th>
      <td data-label="here">{text(here)}</td>
      <td data-label="there">{text(there)}</td>
      <td data-label="difference">{`${sign}${difference !== null && difference < 0 ? `−${text(-difference)}` : text(difference)}`}</td>
    </tr>
  )
}

type Values = (number | null)[]

function last(at: number[]): number {
  return at[at.length - 1] ?? 0
}

function total(chart: ChartData): Values {
  return chart.atS.map((_, place) => chart.series.reduce((sum, one) => sum + (one.values[place] ?? 0), 0))
}

/** Return the time-weighted mean, where a value lasts until the next one; null without values. */
function mean(at: number[], values: Values, until: number): number | null {
  let [weighted, lasted] = [0, 0]
  at.forEach((from, place) => {
    const value = values[place]
    const span = Math.min(at[place + 1] ?? until, until) - from
    if (value === null || value === undefined || span <= 0) return
    weighted += value * span
    lasted += span
  })
  return lasted > 0 ? weighted / lasted : null
}

/** Download a result page as a file. */
export function save(page: ResultPage): void {
  keep(JSON.stringify(page), 'application/json', fileName(page.title, 'json'))
}
