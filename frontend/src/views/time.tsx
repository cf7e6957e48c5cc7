// Time: allocation and pending pods over time; drag to zoom, double click to reset.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Bars } from '../bars'
import { Chart, type ChartData, type Series } from '../chart'
import { Choose, Means, type OtherRun, runOf, save } from '../compare'
import { count } from '../format'
import { AllDecisions } from '../decisions'
import { Happened } from '../happened'
import { model } from '../model'
import { Empty, Problem, useAnswer } from '../parts'
import { RangeChooser } from '../range'
import { go, type Range } from '../route'
import type { DeviceLanes, ResultPage, TimelineData } from '../wire'

export function Time(props: { text: string; range: Range | null }): JSX.Element {
  const [within, setWithin] = useState(0)
  const [chosen, setChosen] = useState<ResultPage | null>(null)
  const { answer, problem } = useAnswer<TimelineData>('timeline', {}, 1000)
  if (!answer) return <section aria-label="Time"><h1>Time</h1><Problem text={problem} /></section>
  const { isVirtual, nowS } = model.status
  const { range } = props
  const isIn = (atS: number): boolean => !range || (atS >= range[0] && atS <= range[1])
  const marks = (answer.marks ?? []).filter((one) => isIn(one.atS) && (!within || one.atS >= nowS - within))
  const live = answer.other
  const other = live ? { title: live.title, facts: [], charts: chartsOf(live) } : chosen && shifted(runOf(chosen), isVirtual ? 0 : (answer.atS[0] ?? 0))
  const charts = chartsOf(answer)
  const kept = (): ResultPage => ({
    title: model.title,
    facts: [`saved ${new Date().toLocaleString()}`],
    figures: [],
    sections: [{ title: 'Over time', charts: isVirtual ? charts : shifted({ title: '', facts: [], charts }, -(answer.atS[0] ?? 0)).charts }],
  })
  return (
    <section aria-label="Time">
      <h1>Time</h1>
      {answer.atS.length < 2 && <Empty>No earlier samples yet.</Empty>}
      <div class="tools">
        <h2>Over time</h2>
        <button type="button" onClick={() => save(kept())}>
          Save this run
        </button>
      </div>
      <RangeChooser range={range} atS={answer.atS} isVirtual={isVirtual} choose={(chosen) => go('time', props.text, chosen)} />
      {live ? <p class="dim">dashed: the same run with {live.title}</p> : <Choose what="compare with a report or a saved run" other={other} choose={setChosen} />}
      {other && <Means title={other.title} own={charts} other={other.charts} />}
      <div class="charts">
        {charts.map((one) => {
          const theirs = other?.charts.find((each) => each.title === one.title)
          return <Chart key={one.title} {...one} isVirtual={isVirtual} marks={marks} range={range} other={other && theirs ? { name: live ? live.title : 'the other', chart: theirs } : undefined} />
        })}
        {charts.length < 2 && <Empty>No pod was pending.</Empty>}
      </div>
      <Devices range={range} atS={answer.atS} nowS={nowS} isVirtual={isVirtual} of="" />
      {live && <Devices range={range} atS={answer.atS} nowS={nowS} isVirtual={isVirtual} of="other" title={`Allocation of GPUs with ${live.title}`} />}
      {!live && other?.devices && <Bars devices={other.devices} range={range} atS={answer.atS} nowS={nowS} isVirtual={isVirtual} hasEnded />}
      <div class="tools">
        <h2>Events</h2>
        <label>
          in{' '}
          <select value={String(within)} onChange={(event) => setWithin(Number(event.currentTarget.value))}>
            <option value="0">all the time</option>
            <option value="600">the last 10 minutes</option>
            <option value="3600">the last hour</option>
          </select>
        </label>
      </div>
      {marks.length > 0 ? <Happened marks={marks} isVirtual={isVirtual} /> : <Empty>No events.</Empty>}
      <AllDecisions text={props.text} />
    </section>
  )
}

const PER_PAGE = 64

/** Return the charts of a timeline, with the titles of a report's charts. */
function chartsOf(data: TimelineData): ChartData[] {
  const { atS } = data
  const allocated: Series[] = [
    { name: 'CPU', tone: 0, values: data.cpu.map(shareOf) },
    { name: 'memory', tone: 1, values: data.memory.map(shareOf) },
    ...(data.gpu.some((value) => value >= 0) ? [{ name: 'GPU', tone: 2, values: data.gpu.map(shareOf) }] : []),
  ]
  const waiting = Object.entries(data.causes).map(([name, values], tone) => ({ name, values, tone }))
  const found: ChartData[] = [{ title: 'Allocation', unit: 'share', atS, series: allocated }]
  if (waiting.length > 0) found.push({ title: 'Pending pods by cause', unit: 'count', atS, series: waiting, isStacked: true })
  return found
}

/** Return a run with its times shifted. */
function shifted(run: OtherRun, bySeconds: number): OtherRun {
  return { ...run, charts: run.charts.map((one) => ({ ...one, atS: one.atS.map((at) => at + bySeconds) })) }
}

/** Allocation of GPUs over time: one page of them, or those that match a text. */
function Devices(props: { range: Range | null; atS: number[]; nowS: number; isVirtual: boolean; of: string; title?: string }): JSX.Element | null {
  const [first, setFirst] = useState(0)
  const [text, setText] = useState('')
  const asked = { first: String(first), most: String(PER_PAGE), text, of: props.of }
  const { answer, problem } = useAnswer<DeviceLanes>('devices', asked, 2000)
  const [known, setKnown] = useState<DeviceLanes | null>(null)
  if (answer && answer !== known) setKnown(answer)
  const devices = answer ?? known
  if (!devices) return <Problem text={problem} />
  if (devices.count === 0 && !text) return null
  const last = Math.min(devices.count, devices.first + devices.lanes.length)
  return (
    <>
      <div class="tools">
        <h2>{props.title ?? 'Allocation of GPUs'}</h2>
        <label>
          only of{' '}
          <input
            type="search"
            placeholder="node, pod or job"
            value={text}
            onInput={(event) => {
              setText(event.currentTarget.value.trim())
              setFirst(0)
            }}
          />
        </label>
        {devices.count > devices.lanes.length && (
          <span>
            <button type="button" disabled={first === 0} onClick={() => setFirst(Math.max(0, first - PER_PAGE))}>
              previous
            </button>{' '}
            GPUs {count(devices.first + 1)} to {count(last)} of {count(devices.count)}{' '}
            <button type="button" disabled={last >= devices.count} onClick={() => setFirst(first + PER_PAGE)}>
              next
            </button>
          </span>
        )}
      </div>
      {devices.lanes.length > 0 ? (
        <Bars devices={devices} open={(node) => go('map', node)} {...props} />
      ) : (
        <Empty>No GPU matches this node, pod or job.</Empty>
      )}
    </>
  )
}

function shareOf(thousandths: number): number | null {
  return thousandths < 0 ? null : thousandths / 1000
}
