// Time: what was allocated and who waited for what; drag to zoom, double click to see all again.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Bars } from '../bars'
import { Chart, type Series } from '../chart'
import { count } from '../format'
import { Happened } from '../happened'
import { model } from '../model'
import { Empty, Problem, useAnswer } from '../parts'
import { go } from '../route'
import type { DeviceLanes, TimelineData } from '../wire'

export function Time(): JSX.Element {
  const [within, setWithin] = useState(0)
  const { answer, problem } = useAnswer<TimelineData>('timeline', {}, 1000)
  if (!answer) return <section aria-label="Time"><h1>Time</h1><Problem text={problem} /></section>
  const { isVirtual, nowS } = model.status
  const marks = (answer.marks ?? []).filter((one) => !within || one.atS >= nowS - within)
  const shared = { atS: answer.atS, isVirtual, marks }
  const allocated: Series[] = [
    { name: 'CPU', tone: 0, values: answer.cpu.map(shareOf) },
    { name: 'memory', tone: 1, values: answer.memory.map(shareOf) },
    ...(answer.gpu.some((value) => value >= 0) ? [{ name: 'GPU', tone: 2, values: answer.gpu.map(shareOf) }] : []),
  ]
  const waiting = Object.entries(answer.causes).map(([name, values], tone) => ({ name, values, tone }))
  return (
    <section aria-label="Time">
      <h1>Time</h1>
      {answer.atS.length < 2 && <Empty>There is nothing before this moment yet.</Empty>}
      <h2>Over time</h2>
      <div class="charts">
        <Chart title="Allocated" unit="share" series={allocated} {...shared} />
        {waiting.length > 0 ? <Chart title="Pods that wait, by cause" unit="count" series={waiting} isStacked {...shared} /> : <Empty>Nobody has waited.</Empty>}
      </div>
      <Devices atS={answer.atS} nowS={nowS} isVirtual={isVirtual} />
      <div class="tools">
        <h2>What happened</h2>
        <label>
          in{' '}
          <select value={String(within)} onChange={(event) => setWithin(Number(event.currentTarget.value))}>
            <option value="0">all the time</option>
            <option value="600">the last 10 minutes</option>
            <option value="3600">the last hour</option>
          </select>
        </label>
      </div>
      {marks.length > 0 ? <Happened marks={marks} isVirtual={isVirtual} /> : <Empty>Nothing that was seen here.</Empty>}
    </section>
  )
}

const PER_PAGE = 64

/** Who held which GPU: some of them at a time, or those that a text names. */
function Devices(props: { atS: number[]; nowS: number; isVirtual: boolean }): JSX.Element | null {
  const [first, setFirst] = useState(0)
  const [text, setText] = useState('')
  const asked = { first: String(first), most: String(PER_PAGE), text }
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
        <h2>Who held what</h2>
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
              before
            </button>{' '}
            GPUs {count(devices.first + 1)} to {count(last)} of {count(devices.count)}{' '}
            <button type="button" disabled={last >= devices.count} onClick={() => setFirst(first + PER_PAGE)}>
              after
            </button>
          </span>
        )}
      </div>
      {devices.lanes.length > 0 ? (
        <Bars devices={devices} open={(node) => go('map', node)} {...props} />
      ) : (
        <Empty>No GPU of a node, pod or job that is called so.</Empty>
      )}
    </>
  )
}

function shareOf(thousandths: number): number | null {
  return thousandths < 0 ? null : thousandths / 1000
}
