// Time: what was allocated and who waited for what; drag to zoom, double click to see all again.
import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { LINES } from '../colours'
import { moment } from '../format'
import { model } from '../model'
import { Empty, Problem, Table, useAnswer } from '../parts'
import type { TimelineData } from '../wire'

export function Time(): JSX.Element {
  const { answer, problem } = useAnswer<TimelineData>('timeline', {}, 1000)
  if (!answer) return <section aria-label="Time"><h1>Time</h1><Problem text={problem} /></section>
  const gpus = answer.gpu.some((value) => value >= 0)
  const causes = Object.entries(answer.causes)
  const last = answer.atS.length - 1
  return (
    <section aria-label="Time">
      <h1>Time</h1>
      {last < 1 && <Empty>There is nothing before this moment yet.</Empty>}
      <Chart
        title="Allocated"
        unit=" %"
        at={answer.atS}
        lines={[
          ['CPU', answer.cpu.map(shareOf)],
          ['memory', answer.memory.map(shareOf)],
          ...(gpus ? ([['GPUs', answer.gpu.map(shareOf)]] as [string, (number | null)[]][]) : []),
        ]}
      />
      <Chart title="Pods that wait, by cause" unit="" at={answer.atS} lines={causes} />
      <Marks marks={answer.marks ?? []} />
    </section>
  )
}

function shareOf(thousandths: number): number | null {
  return thousandths < 0 ? null : thousandths / 10
}

type Line = [string, (number | null)[]]

function Chart(props: { title: string; unit: string; at: number[]; lines: Line[] }): JSX.Element {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const isZoomed = useRef(false)
  const names = props.lines.map(([name]) => name).join('\n')
  useEffect(() => {
    const box = place.current
    if (!box) return undefined
    const style = getComputedStyle(box)
    const [ink, grid] = [style.color, style.getPropertyValue('--line')]
    const axis = { stroke: ink, grid: { stroke: grid }, ticks: { stroke: grid } }
    const made = new uPlot(
      {
        width: box.clientWidth,
        height: 220,
        cursor: { sync: { key: 'time' } },
        hooks: {
          setSelect: [() => (isZoomed.current = true)],
          ready: [(drawn) => drawn.over.addEventListener('dblclick', () => (isZoomed.current = false))],
        },
        legend: { live: true },
        scales: { x: { time: !model.status.isVirtual }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] } },
        axes: [
          { ...axis, ...(model.status.isVirtual ? { values: (_: uPlot, at: number[]) => at.map((one) => moment(one, true)) } : {}) },
          { ...axis, size: 56 },
        ],
        series: [
          { label: 'time', value: (_, at) => (at === null ? '–' : moment(at, model.status.isVirtual)) },
          ...props.lines.map(([label], index) => ({
            label,
            stroke: LINES[index % LINES.length] ?? ink,
            width: 1.5,
            spanGaps: false,
            value: (_: uPlot, value: number | null) => (value === null ? '–' : `${Math.round(value * 10) / 10}${props.unit}`),
          })),
        ],
      },
      [props.at, ...props.lines.map(([, values]) => values)] as uPlot.AlignedData,
      box,
    )
    plot.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: 220 }))
    observer.observe(box)
    return () => {
      observer.disconnect()
      made.destroy()
    }
  }, [names, props.unit])
  useEffect(() => {
    plot.current?.setData([props.at, ...props.lines.map(([, values]) => values)] as uPlot.AlignedData, !isZoomed.current)
    if (isZoomed.current) plot.current?.redraw()
  })
  return (
    <>
      <h2>{props.title}</h2>
      <div ref={place} class="chart" role="img" aria-label={inWords(props)} />
    </>
  )
}

function inWords(props: { title: string; unit: string; lines: Line[] }): string {
  const now = props.lines.map(([name, values]) => `${name} ${values[values.length - 1] ?? 'unknown'}${props.unit}`)
  return `${props.title}; now ${now.join(', ') || 'nothing'}`
}

function Marks(props: { marks: { atS: number; text: string }[] }): JSX.Element | null {
  // What happens a hundred times in the same words, but for names, is one line with a number.
  const groups = new Map<string, { text: string; times: number; atS: number }>()
  for (const one of props.marks) {
    const key = one.text.replace(/[^\s]*\d[^\s]*/g, '#').replace(/[^\s]+\/[^\s]+/g, '#')
    const known = groups.get(key)
    groups.set(key, { text: one.text, times: (known?.times ?? 0) + 1, atS: one.atS })
  }
  const listed = [...groups.values()].sort((a, b) => b.atS - a.atS)
  return listed.length === 0 ? null : (
    <>
      <h2>What happened</h2>
      <Table label="What happened" heads={['Last', 'Times', 'What']}>
        {listed.slice(0, 200).map((one) => (
          <tr>
            <td>{moment(one.atS, model.status.isVirtual)}</td>
            <td>{one.times}</td>
            <td>{one.text}</td>
          </tr>
        ))}
      </Table>
    </>
  )
}
