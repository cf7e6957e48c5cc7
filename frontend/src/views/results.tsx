// Result page of a run or plan, shown live or as a self-contained file.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Bars } from '../bars'
import { Chart } from '../chart'
import { Choose, Means, type OtherRun, runOf, save } from '../compare'
import { count } from '../format'
import { Happened } from '../happened'
import { Bar, Problem, Table, ThemeSwitch, useAnswer } from '../parts'
import type { DeviceLanes, ResultPage, ResultSection, ResultTable } from '../wire'

export function Results(props: { page: ResultPage }): JSX.Element {
  return (
    <>
      <header class="results">
        <div class="tools">
          <h1 class="title">{props.page.title}</h1>
          <ThemeSwitch />
        </div>
        <Facts page={props.page} />
      </header>
      <main class="results">
        <ResultBody page={props.page} />
      </main>
    </>
  )
}

/** The report of a run, in the live page. */
export function Report(): JSX.Element {
  const { answer, problem } = useAnswer<ResultPage>('report', {}, 3_600_000)
  return (
    <section class="results" aria-label="Report">
      <h1>Report</h1>
      <Problem text={problem} />
      {answer && (
        <>
          <div class="tools">
            <Facts page={answer} />
            <button type="button" onClick={() => save(answer)}>
              Save the report
            </button>
          </div>
          <ResultBody page={answer} />
        </>
      )}
    </section>
  )
}

function Facts(props: { page: ResultPage }): JSX.Element {
  return (
    <ul class="facts">
      {props.page.facts.map((text) => (
        <li>{text}</li>
      ))}
    </ul>
  )
}

function ResultBody(props: { page: ResultPage }): JSX.Element {
  const { page } = props
  const [other, setOther] = useState<ResultPage | null>(null)
  const marks = page.sections.flatMap((one) => one.marks ?? [])
  const run = other && runOf(other)
  const atS = page.sections.flatMap((one) => one.charts ?? [])[0]?.atS ?? []
  return (
    <>
      {page.figures.length > 0 && (
        <dl class="figures">
          {page.figures.map((one) => (
            <div>
              <dt>{one.label}</dt>
              <dd>{one.value}</dd>
              <dd class="remark">{one.remark ?? ''}</dd>
              <OtherFigure of={other} label={one.label} />
            </div>
          ))}
        </dl>
      )}
      {page.sections.some((one) => one.charts) && <Choose what="compare with another report" other={run} choose={setOther} />}
      {run && <Means title={run.title} own={runOf(page).charts} other={run.charts} />}
      {page.sections.map((one) => (
        <Section section={one} marks={marks} atS={atS} other={run} />
      ))}
    </>
  )
}

function OtherFigure(props: { of: ResultPage | null; label: string }): JSX.Element | null {
  const found = props.of?.figures.find((one) => one.label === props.label)
  return found ? <dd class="remark">the other: {found.value}</dd> : null
}

export function Section(props: { section: ResultSection; marks: ResultSection['marks']; atS: number[]; other: OtherRun | null }): JSX.Element {
  const { section, other } = props
  const charts = section.charts ?? []
  const inside = (
    <>
      {section.text && <p>{section.text}</p>}
      {charts.length > 0 && (
        <div class={charts.some((one) => one.isSmall) ? 'charts small' : 'charts'}>
          {charts.map((one) => {
            const theirs = other?.charts.find((each) => each.title === one.title)
            const compared = other && theirs ? { name: 'the other', chart: theirs } : undefined
            return <Chart key={one.title} {...one} isVirtual marks={props.marks ?? []} other={compared} />
          })}
        </div>
      )}
      {section.devices && <Devices devices={section.devices} atS={props.atS} other={other?.devices} />}
      {(section.tables ?? []).map((one) => (
        <ResultRows table={one} />
      ))}
      {section.marks && <Happened marks={section.marks} isVirtual />}
    </>
  )
  return section.isFolded ? (
    <details class="section">
      <summary>{section.title}</summary>
      {inside}
    </details>
  ) : (
    <section aria-label={section.title}>
      <h2>{section.title}</h2>
      {inside}
    </section>
  )
}

/** GPU bars of a run, and below them those of the run to compare with. */
function Devices(props: { devices: DeviceLanes; atS: number[]; other?: DeviceLanes | undefined }): JSX.Element {
  const nowS = props.atS[props.atS.length - 1] ?? 0
  const left = props.devices.count - props.devices.lanes.length
  return (
    <>
      <Bars devices={props.devices} atS={props.atS} nowS={nowS} isVirtual hasEnded />
      {left > 0 && <p>and {count(left)} more GPUs, which are not in this file; koord dashboard shows all of them in the view Time</p>}
      {props.other && (
        <>
          <h3>The other run</h3>
          <Bars devices={props.other} atS={props.atS} nowS={nowS} isVirtual hasEnded />
        </>
      )}
    </>
  )
}

function ResultRows(props: { table: ResultTable }): JSX.Element {
  const { table } = props
  const cell = (value: string | { before: number; after: number }, place: number): JSX.Element =>
    place === 0 && table.hasFigures ? (
      <th scope="row">{value as string}</th>
    ) : (
      <td>{typeof value === 'string' ? value : <Change {...value} />}</td>
    )
  return (
    <>
      <Table label={`${table.label}, table`} heads={table.heads} tone={table.hasFigures ? 'figures-table' : ''}>
        {table.rows.map((row) => (
          <tr>{row.map(cell)}</tr>
        ))}
        {table.foot && <tr class="foot">{table.foot.map(cell)}</tr>}
      </Table>
      {(table.leftOut ?? 0) > 0 && <p>and {count(table.leftOut ?? 0)} more</p>}
    </>
  )
}

function Change(props: { before: number; after: number }): JSX.Element {
  const text = [props.before, props.after].map((one) => `${(one * 100).toFixed(1)}%`)
  return (
    <>
      {text.join(' → ')}
      {[props.before, props.after].map((one, place) => (
        <Bar label={place ? 'after' : 'before'} value={1000 * one} text={text[place] ?? ''} />
      ))}
    </>
  )
}
