// The map: every node a cell, drawn on one canvas; a node opens into what is inside.
import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { colourOf, UNKNOWN_COLOUR } from '../colours'
import { percent } from '../format'
import { layoutOf, nodeAt, type Layout } from '../layout'
import { model, valueOf } from '../model'
import { Empty } from '../parts'
import { go } from '../route'
import { NodeInside } from './node'

const COLOURS: Record<string, string> = {
  cpu: 'CPU allocated',
  memory: 'memory allocated',
  gpu: 'GPUs allocated',
  load: 'CPU load, measured',
  holes: 'fragmentation: free on GPUs in part taken',
  lowQos: 'batch and mid pods, of the CPU asked for',
  state: 'state',
}
const GROUPS: Record<string, string> = { pools: 'pool', zones: 'zone', blocks: 'network block', none: 'nothing' }
export const STATES = ['ready', 'cordoned', 'a device is unhealthy', 'not ready']

export function NodeMap(props: { node: string }): JSX.Element {
  const [colour, setColour] = useState('cpu')
  const [group, setGroup] = useState('pools')
  const [find, setFind] = useState('')
  const [gpus, setGpus] = useState(0)
  const [hovered, setHovered] = useState(-1)
  const [width, setWidth] = useState(0)
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const chosen = model.nodes.names.indexOf(props.node)
  const cursor = useRef(0)

  useEffect(() => {
    const watched = box.current
    if (!watched) return undefined
    const observer = new ResizeObserver(() => setWidth(watched.clientWidth))
    observer.observe(watched)
    setWidth(watched.clientWidth)
    return () => observer.disconnect()
  }, [])

  const layout = useMemo(
    () => layoutOf(model.nodes, group, width),
    [model.layout, group, width],
  )
  const wanted = find.trim().toLowerCase()
  const isWanted = (row: number): boolean =>
    (!wanted || (model.nodes.names[row] ?? '').toLowerCase().includes(wanted)) && (!gpus || valueOf(row, 'freeGpus') >= gpus)
  const filters = Boolean(wanted) || gpus > 0
  const matching = filters ? model.nodes.names.filter((_, row) => isWanted(row)) : []

  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      if (canvas.current) draw(canvas.current, layout, colour, hovered, chosen, filters ? isWanted : null)
    })
    return () => cancelAnimationFrame(frame)
  })

  const move = (event: JSX.TargetedMouseEvent<HTMLCanvasElement>): number => {
    const area = event.currentTarget.getBoundingClientRect()
    return nodeAt(layout, event.clientX - area.left, event.clientY - area.top)
  }
  const keys = (event: KeyboardEvent): void => {
    const at = layout.order.indexOf(hovered >= 0 ? hovered : (layout.order[cursor.current] ?? 0))
    const by: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.perRow, ArrowUp: -layout.perRow }
    const step = by[event.key]
    if (step !== undefined) {
      event.preventDefault()
      cursor.current = Math.min(Math.max(at + step, 0), layout.order.length - 1)
      setHovered(layout.order[cursor.current] ?? -1)
    } else if (event.key === 'Enter' && hovered >= 0) go('map', model.nodes.names[hovered])
  }

  return (
    <div class="columns wide">
      <section aria-label="Map">
        <div class="tools">
          <h1>Nodes</h1>
          <label>
            colour{' '}
            <select value={colour} onChange={(event) => setColour(event.currentTarget.value)}>
              {Object.entries(COLOURS).map(([name, words]) => (
                <option value={name}>{words}</option>
              ))}
            </select>
          </label>
          <label>
            group by{' '}
            <select value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
              {Object.entries(GROUPS).map(([name, words]) => (
                <option value={name}>{words}</option>
              ))}
            </select>
          </label>
          <label>
            whole GPUs free ≥{' '}
            <input type="number" min={0} max={64} value={gpus} onInput={(event) => setGpus(Number(event.currentTarget.value))} />
          </label>
          <input
            type="search"
            data-search
            aria-label="Find a node"
            placeholder="find a node ( / )"
            value={find}
            onInput={(event) => setFind(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Enter' && matching[0]) go('map', matching[0])
            }}
          />
        </div>
        <Legend colour={colour} />
        {filters && (
          <p role="status">
            {matching.length} {matching.length === 1 ? 'node' : 'nodes'}
            {matching.length > 0 && ': '}
            {matching.slice(0, 6).map((name, place) => (
              <>
                {place > 0 && ', '}
                <a href={`#/map/${encodeURIComponent(name)}`}>{name}</a>
              </>
            ))}
            {matching.length > 6 && ' …'}
          </p>
        )}
        <div ref={box} class="map">
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-label={`Map of ${model.nodes.names.length} nodes: arrow keys move, Enter opens`}
            aria-describedby="under-cursor"
            onMouseMove={(event) => setHovered(move(event))}
            onMouseLeave={() => setHovered(-1)}
            onClick={(event) => {
              const row = move(event)
              if (row >= 0) go('map', model.nodes.names[row])
            }}
            onKeyDown={keys}
          />
          {model.number > 0 && model.nodes.names.length === 0 && <Empty>There are no nodes that you may see.</Empty>}
        </div>
        <p id="under-cursor" class="dim" aria-live="polite">
          {hovered >= 0 ? wordsOf(hovered) : ' '}
        </p>
      </section>
      {props.node && (
        <section aria-label="Node" class="detail">
          <NodeInside name={props.node} />
        </section>
      )}
    </div>
  )
}

function wordsOf(row: number): string {
  const known = ['cpu', 'memory', 'gpu', 'load', 'holes']
    .map((column) => [column, valueOf(row, column)] as const)
    .filter(([, value]) => value >= 0)
    .map(([column, value]) => `${column} ${percent(value)}`)
  const where = [model.nodes.pools[row], model.nodes.zones[row], model.nodes.blocks[row]].filter(Boolean).join(', ')
  return [model.nodes.names[row], where, ...known, `${valueOf(row, 'pods')} pods`, STATES[valueOf(row, 'state')] ?? '']
    .filter(Boolean)
    .join(' · ')
}

function Legend(props: { colour: string }): JSX.Element {
  const steps = props.colour === 'state' ? [0, 1, 2, 3] : [0, 250, 500, 750, 1000]
  return (
    <p class="legend">
      {steps.map((value) => (
        <span>
          <i style={{ background: colourOf(props.colour, value) }} />
          {props.colour === 'state' ? STATES[value] : `${value / 10} %`}
        </span>
      ))}
      {props.colour !== 'state' && (
        <span>
          <i style={{ background: UNKNOWN_COLOUR }} />
          {props.colour === 'gpu' || props.colour === 'holes' ? 'no GPUs' : 'unknown'}
        </span>
      )}
    </p>
  )
}

function draw(
  canvas: HTMLCanvasElement,
  layout: Layout,
  colour: string,
  hovered: number,
  chosen: number,
  isWanted: ((row: number) => boolean) | null,
): void {
  const ratio = window.devicePixelRatio || 1
  const [width, height] = [Math.round(layout.width * ratio), Math.round(layout.height * ratio)]
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width
    canvas.height = height
    canvas.style.width = `${layout.width}px`
    canvas.style.height = `${layout.height}px`
  }
  const pen = canvas.getContext('2d')
  if (!pen) return
  const style = getComputedStyle(canvas)
  pen.setTransform(ratio, 0, 0, ratio, 0, 0)
  pen.clearRect(0, 0, layout.width, layout.height)
  pen.font = `12px ${style.fontFamily}`
  pen.fillStyle = style.color
  for (const title of layout.titles) pen.fillText(title.text, title.x, title.y)
  const side = layout.cell - layout.gap
  for (let row = 0; row < layout.x.length; row += 1) {
    pen.globalAlpha = isWanted && !isWanted(row) ? 0.12 : 1
    pen.fillStyle = colourOf(colour, valueOf(row, colour))
    pen.fillRect(layout.x[row] ?? 0, layout.y[row] ?? 0, side, side)
  }
  pen.globalAlpha = 1
  pen.strokeStyle = style.color
  pen.lineWidth = 2
  for (const row of [hovered, chosen])
    if (row >= 0 && row < layout.x.length) pen.strokeRect((layout.x[row] ?? 0) - 1, (layout.y[row] ?? 0) - 1, side + 2, side + 2)
}
