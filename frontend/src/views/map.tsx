// Map of the nodes: one cell per node on a single canvas; a click opens the node's details.
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { CellPainter, DIM, type Ink } from '../cells'
import { colourOf, toneOf, UNKNOWN_COLOUR } from '../colours'
import { percent } from '../format'
import { inView, layoutOf, nodeAt, seen, WHOLE, zoomed, type Layout, type View } from '../layout'
import { model, valueOf } from '../model'
import { Empty } from '../parts'
import { go } from '../route'
import { NodeInside } from './node'

const COLOURS: Record<string, string> = {
  cpu: 'CPU allocated',
  memory: 'memory allocated',
  gpu: 'GPUs allocated',
  load: 'CPU load, measured',
  holes: 'fragmentation: free on partly used GPUs',
  lowQos: 'batch and mid pods, of the requested CPU',
  state: 'state',
}
const GROUPS: Record<string, string> = { pools: 'pool', zones: 'zone', blocks: 'network block', none: 'none' }
export const STATES = ['ready', 'cordoned', 'unhealthy device', 'not ready']

export function NodeMap(props: { node: string }): JSX.Element {
  const [colour, setColour] = useState('cpu')
  const [group, setGroup] = useState('pools')
  const [find, setFind] = useState('')
  const [gpus, setGpus] = useState(0)
  const [isLinked, setLinked] = useState(false)
  const [view, setView] = useState<View>(WHOLE)
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
  const lowered = useMemo(() => model.nodes.names.map((name) => name.toLowerCase()), [model.layout])
  const wanted = find.trim().toLowerCase()
  const filters = Boolean(wanted) || gpus > 0
  const free = isLinked ? 'linkedGpus' : 'freeGpus'
  const isWanted = useMemo(
    () => (filters ? lowered.map((name, row) => name.includes(wanted) && (!gpus || valueOf(row, free) >= gpus)) : null),
    [model.number, lowered, wanted, gpus, free],
  )
  const matching = useMemo(
    () => (isWanted ? model.nodes.names.filter((_, row) => isWanted[row]) : []),
    [isWanted],
  )

  const ink = useInk(canvas)
  const painter = useRef(new CellPainter())
  useLayoutEffect(() => {
    const frame = requestAnimationFrame(() => {
      if (canvas.current) painter.current.paint(canvas.current, layout, view, tonesOf(colour, isWanted), model.nodes.names, ink())
    })
    return () => cancelAnimationFrame(frame)
  })

  const move = (event: JSX.TargetedMouseEvent<HTMLCanvasElement>): number => {
    const area = event.currentTarget.getBoundingClientRect()
    return nodeAt(layout, ...inView(view, event.clientX - area.left, event.clientY - area.top))
  }
  const zoom = (factor: number, x = layout.width / 2, y = layout.height / 2): void =>
    setView((old) => zoomed(old, factor, x, y, layout))
  const drag = useRef<{ x: number; y: number; view: View; hasMoved: boolean } | null>(null)
  useEffect(() => setView(WHOLE), [layout])
  useEffect(() => {
    const drawn = canvas.current
    const wheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && view.scale === 1) return // the page scrolls
      event.preventDefault()
      const area = (event.currentTarget as HTMLElement).getBoundingClientRect()
      zoom(Math.exp(-event.deltaY / 300), event.clientX - area.left, event.clientY - area.top)
    }
    drawn?.addEventListener('wheel', wheel, { passive: false })
    return () => drawn?.removeEventListener('wheel', wheel)
  })
  const pull = (event: JSX.TargetedPointerEvent<HTMLCanvasElement>): void => {
    const from = drag.current
    if (!from) return
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y]
    if (Math.abs(dx) + Math.abs(dy) > 4) from.hasMoved = true
    if (from.hasMoved) setView(seen({ ...from.view, x: from.view.x - dx / from.view.scale, y: from.view.y - dy / from.view.scale }, layout))
  }
  const keys = (event: KeyboardEvent): void => {
    if (event.key === '+' || event.key === '-') return zoom(event.key === '+' ? 1.5 : 1 / 1.5)
    const at = layout.order.indexOf(hovered >= 0 ? hovered : (layout.order[cursor.current] ?? 0))
    const by: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.perRow, ArrowUp: -layout.perRow }
    const step = by[event.key]
    if (step !== undefined) {
      event.preventDefault()
      cursor.current = Math.min(Math.max(at + step, 0), layout.order.length - 1)
      setHovered(layout.order[cursor.current] ?? -1)
    } else if (event.key === 'Enter' && hovered >= 0) go('map', model.nodes.names[hovered])
  }

  // Memoised: the same element is not compared again for each frame of the stream.
  const tools = useMemo(
    () => (
      <>
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
          free GPUs ≥{' '}
          <input type="number" min={0} max={64} value={gpus} onInput={(event) => setGpus(Number(event.currentTarget.value))} />
        </label>
        <label>
          <input type="checkbox" checked={isLinked} onChange={(event) => setLinked(event.currentTarget.checked)} /> linked by NVLink
        </label>
        <span class="zoom">
          <button type="button" aria-label="Zoom in" onClick={() => zoom(1.5)}>
            +
          </button>
          <button type="button" aria-label="Zoom out" onClick={() => zoom(1 / 1.5)} disabled={view.scale === 1}>
            −
          </button>
          <button type="button" onClick={() => setView(WHOLE)} disabled={view.scale === 1}>
            all
          </button>
        </span>
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
      </>
    ),
    [colour, group, gpus, isLinked, find, view.scale === 1, layout, matching[0]],
  )

  return (
    <div class="columns wide">
      <section aria-label="Map">
        {tools}
        <Highest colour={colour} />
        {isLinked && gpus > 0 && <LinksUnknown />}
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
            aria-label={`Map of ${model.nodes.names.length} nodes: arrow keys move, Enter opens, plus and minus zoom`}
            aria-describedby="under-cursor"
            onMouseMove={(event) => setHovered(move(event))}
            onMouseLeave={() => setHovered(-1)}
            onPointerDown={(event) => {
              drag.current = { x: event.clientX, y: event.clientY, view, hasMoved: false }
              if (view.scale > 1) event.currentTarget.setPointerCapture(event.pointerId)
            }}
            onPointerMove={(event) => view.scale > 1 && pull(event)}
            onPointerUp={() => window.setTimeout(() => (drag.current = null))}
            onClick={(event) => {
              if (drag.current?.hasMoved) return
              const row = move(event)
              if (row >= 0) go('map', model.nodes.names[row])
            }}
            onKeyDown={keys}
          />
          <Ring row={hovered} layout={layout} view={view} />
          <Ring row={chosen} layout={layout} view={view} />
          {model.number > 0 && model.nodes.names.length === 0 && <Empty>There are no nodes, or you may not list them.</Empty>}
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

/** The nodes with the highest values of the shown column. */
function Highest(props: { colour: string }): JSX.Element | null {
  const first = useMemo(() => highest(props.colour), [model.number, props.colour])
  return first.length === 0 || props.colour === 'state' ? null : (
    <p class="dim">
      Highest:{' '}
      {first.map((one, place) => (
        <>
          {place > 0 && ', '}
          <a href={`#/map/${encodeURIComponent(one.name)}`}>{one.name}</a> {percent(one.value)}
        </>
      ))}
    </p>
  )
}

const MAX_NAMED = 5

function highest(column: string): { name: string; value: number }[] {
  const rows: number[] = [] // insertion into a short list: sorting thousands for each frame is too slow
  for (let row = 0; row < model.nodes.names.length; row += 1) {
    const value = valueOf(row, column)
    if (value <= 0 || (rows.length === MAX_NAMED && value <= valueOf(rows[MAX_NAMED - 1] ?? 0, column))) continue
    const after = rows.findIndex((other) => valueOf(other, column) < value)
    rows.splice(after < 0 ? rows.length : after, 0, row)
    if (rows.length > MAX_NAMED) rows.pop()
  }
  return rows.map((row) => ({ name: model.nodes.names[row] ?? '', value: valueOf(row, column) }))
}

function LinksUnknown(): JSX.Element | null {
  const many = model.nodes.gpus.filter((gpus, row) => gpus > 0 && valueOf(row, 'linkedGpus') < 0).length
  return many === 0 ? null : (
    <p class="dim">
      {many} {many === 1 ? 'node does' : 'nodes do'} not report GPU links.
    </p>
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

function tonesOf(column: string, isWanted: boolean[] | null): Uint8Array {
  const tones = new Uint8Array(model.nodes.names.length)
  for (let row = 0; row < tones.length; row += 1)
    tones[row] = toneOf(column, valueOf(row, column)) + (isWanted && !isWanted[row] ? DIM : 0)
  return tones
}

/** Outline of a cell: a separate element, so that pointer movement does not redraw the map. */
function Ring(props: { row: number; layout: Layout; view: View }): JSX.Element | null {
  const { row, layout, view } = props
  if (row < 0 || row >= layout.x.length) return null
  const side = (layout.cell - layout.gap) * view.scale
  const [x, y] = [((layout.x[row] ?? 0) - view.x) * view.scale, ((layout.y[row] ?? 0) - view.y) * view.scale]
  return <i class="ring" style={{ transform: `translate(${x}px, ${y}px)`, width: `${side}px`, height: `${side}px` }} />
}

/** Return a getter of the text style on the map, cached until the theme changes. */
function useInk(canvas: { current: HTMLCanvasElement | null }): () => Ink {
  const known = useRef<Ink | null>(null)
  const [, setCount] = useState(0)
  useEffect(() => {
    const invalidate = (): void => {
      known.current = null
      setCount((old) => old + 1)
    }
    const dark = window.matchMedia('(prefers-color-scheme: dark)')
    window.addEventListener('koord-theme', invalidate)
    dark.addEventListener('change', invalidate)
    return () => {
      window.removeEventListener('koord-theme', invalidate)
      dark.removeEventListener('change', invalidate)
    }
  }, [])
  return () => {
    if (known.current === null && canvas.current) {
      const style = getComputedStyle(canvas.current)
      known.current = { colour: style.color, font: style.fontFamily }
    }
    return known.current ?? { colour: '', font: '' }
  }
}
