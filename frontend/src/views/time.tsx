// Time: what was allocated and who waited for what; drag to zoom, double click to see all again.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Chart, type Series } from '../chart'
import { Happened } from '../happened'
import { model } from '../model'
import { Empty, Problem, useAnswer } from '../parts'
import type { TimelineData } from '../wire'

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

function shareOf(thousandths: number): number | null {
  return thousandths < 0 ? null : thousandths / 1000
}
