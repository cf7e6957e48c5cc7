// The live page: a header and one view at a time.
import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { follow, post, Refused, setToken } from './client'
import { bytes, count, duration, moment, percent, share } from './format'
import { Help } from './help'
import { apply, model } from './model'
import { Bar, Problem, ThemeSwitch, useAnswer } from './parts'
import { go, type Route, route, VIEWS, type View } from './route'
import { NeedsAttention } from './views/attention'
import { NodeMap } from './views/map'
import { Report } from './views/results'
import { Start } from './views/start'
import { Shares } from './views/shares'
import { Time } from './views/time'
import { TryIt } from './views/try'
import { Waiting } from './views/waiting'
import type { Attention } from './wire'

const TITLES: Record<View, string> = {
  start: 'Start',
  waiting: 'Pending pods',
  map: 'Nodes',
  shares: 'Shares',
  attention: 'Problems',
  time: 'Time',
  try: 'What if',
  report: 'Report',
}
const UNREADABLE = 'not readable' // manifests
const PHASES = { loading: 'loading', live: 'live', paused: 'paused', ended: 'ended', lost: 'unreachable' }

let changed: () => void = () => undefined
let isDue = false
let stream: { restart: () => void } = { restart: () => undefined }

/** Render the model with the next animation frame; a hidden page renders once a second, for its title. */
function show(): void {
  if (isDue) return
  isDue = true
  const draw = (): void => {
    isDue = false
    changed()
  }
  if (document.hidden) window.setTimeout(draw, 1000)
  else window.requestAnimationFrame(draw)
}

/** Start following the server; call it once. */
export function followServer(): void {
  stream = follow({
    open: () => (model.unasked = 0),
    frame: (frame) => {
      if (!apply(frame)) stream.restart()
      show()
    },
    away: (why) => {
      model.isConnected = false
      model.refused = why
      show()
    },
  })
}

/** Return the views; the report exists only for a run that has ended. */
function views(): View[] {
  return VIEWS.filter((one) => one !== 'report' || model.status.hasReport)
}

export function App(): JSX.Element {
  const [, setCount] = useState(0)
  const [where, setWhere] = useState(route())
  const [isHelpOpen, setHelpOpen] = useState(false)
  useEffect(() => {
    changed = () => setCount((old) => old + 1)
    const moved = (): void => setWhere(route())
    const pressed = (event: KeyboardEvent): void => {
      const isWriting = event.target instanceof HTMLElement && event.target.matches('input, textarea, select')
      if (isWriting || event.ctrlKey || event.metaKey || event.altKey) return
      const view = /^\d$/.test(event.key) ? views()[Number(event.key)] : undefined
      if (view) go(view)
      else if (event.key === '?') setHelpOpen(true)
      else if (event.key === '/') {
        event.preventDefault()
        document.querySelector<HTMLInputElement>('[data-search]')?.focus()
      } else if (event.key === 'Escape' && !document.querySelector('dialog[open]')) go(route().view)
    }
    window.addEventListener('hashchange', moved)
    window.addEventListener('keydown', pressed)
    return () => {
      window.removeEventListener('hashchange', moved)
      window.removeEventListener('keydown', pressed)
    }
  }, [])
  const attention = useAnswer<Attention>('attention', model.number > 0 ? {} : null, 30_000)
  const urgent = attention.answer?.items ?? []
  const hasErrors = urgent.some((one) => one.severity === 'error')
  useEffect(() => {
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' })
  }, [where.view, model.number > 0, urgent.length > 0, model.totals.waiting > 0])
  document.title = model.totals.waiting > 0 ? `(${model.totals.waiting}) ${model.title}` : model.title
  return (
    <>
      <a class="skip" href="#main">
        skip to the view
      </a>
      <Header openHelp={() => setHelpOpen(true)} />
      <Help view={where.view} title={TITLES[where.view]} isOpen={isHelpOpen} close={() => setHelpOpen(false)} />
      <nav aria-label="Views">
        {views().map((view, place) => (
          <a href={`#/${view}`} aria-current={view === where.view ? 'page' : undefined}>
            <kbd>{place}</kbd> {TITLES[view]}
            {view === 'waiting' && model.totals.waiting > 0 && <span class="badge">{count(model.totals.waiting)}</span>}
            {view === 'attention' && urgent.length > 0 && <span class={hasErrors ? 'badge' : 'badge warning'}>{count(urgent.length)}</span>}
          </a>
        ))}
      </nav>
      <main id="main" tabIndex={-1}>
        {model.refused && (model.refused.status === 401 || model.refused.status === 403) ? (
          <SignIn why={model.refused.message} />
        ) : (
          <Open {...where} />
        )}
      </main>
    </>
  )
}

function Open(props: Route): JSX.Element {
  switch (props.view) {
    case 'start':
      return <Start views={views().slice(1)} titles={TITLES} />
    case 'map':
      return <NodeMap node={props.name} />
    case 'shares':
      return <Shares />
    case 'attention':
      return <NeedsAttention />
    case 'time':
      return <Time text={props.name} range={props.range} />
    case 'report':
      return <Report />
    case 'try':
      return <TryIt />
    default:
      return <Waiting pod={props.name} />
  }
}

function Header(props: { openHelp: () => void }): JSX.Element {
  const { status, totals } = model
  const isAway = !model.isConnected
  const phase = isAway ? (model.number ? 'the server does not respond' : 'connecting') : status.phase === 'lost' && model.source === 'manifests' ? UNREADABLE : PHASES[status.phase]
  return (
    <header>
      <div class="tools">
        <strong class="title">{model.title}</strong>
        <span class={`phase ${isAway ? 'lost' : status.phase}`} role="status">
          {phase}
        </span>
        {model.number > 0 && <span class="dim">{moment(status.nowS, status.isVirtual)}</span>}
        {useMemo(() => (
          <ThemeSwitch />
        ), [])}
        <button type="button" aria-keyshortcuts="?" onClick={props.openHelp}>
          Help
        </button>
      </div>
      <Problem text={isAway ? (model.refused?.message ?? '') : status.problem} />
      {model.unasked > 0 && (
        <p class="dim" role="status">
          Your rights in {count(model.unasked)} namespaces are still under review; more objects may appear.
        </p>
      )}
      {status.speed !== null && <TimeControl />}
      <dl class="totals">
        <Amount name="nodes" text={count(totals.nodes)} />
        <Amount name="pods with a node" text={count(totals.placed)} />
        <Amount name="pending pods" text={count(totals.waiting)} />
        <Amount name="CPU" of={share(totals.cpu)} text={`${count(Math.round(totals.cpu[0] / 1000))} of ${count(Math.round(totals.cpu[1] / 1000))}`} />
        <Amount name="memory" of={share(totals.memory)} text={`${bytes(totals.memory[0])} of ${bytes(totals.memory[1])}`} />
        {totals.gpu[1] > 0 && (
          <Amount name="GPUs" of={share(totals.gpu)} text={`${count(Math.round(totals.gpu[0] / 100))} of ${count(Math.round(totals.gpu[1] / 100))}`} />
        )}
      </dl>
    </header>
  )
}

function Amount(props: { name: string; text: string; of?: number }): JSX.Element {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        {props.text}
        {props.of !== undefined && (
          <>
            {' '}
            <Bar label={props.name} value={props.of} text={percent(props.of)} />
          </>
        )}
      </dd>
    </div>
  )
}

const SPEEDS = [1, 10, 60, 600, 3600, 20000]

function TimeControl(): JSX.Element {
  const { status } = model
  const [problem, setProblem] = useState('')
  const [dragged, setDragged] = useState<number | null>(null)
  const control = async (wanted: Record<string, unknown>): Promise<void> => {
    try {
      await post('control', wanted)
      setProblem('')
    } catch (error) {
      setProblem(error instanceof Refused ? error.message : 'the server did not respond')
    }
  }
  const [from, to] = [status.fromS ?? 0, status.toS ?? 0]
  const isPaused = status.phase === 'paused'
  const speeds = SPEEDS.includes(status.speed ?? 0) || !status.speed ? SPEEDS : [...SPEEDS, status.speed].sort((a, b) => a - b)
  return (
    <div class="tools time">
      {status.phase !== 'ended' && (
        <button type="button" onClick={() => void control({ isPaused: !isPaused })}>
          {isPaused ? 'resume' : 'pause'}
        </button>
      )}
      <label>
        speed{' '}
        <select value={String(status.speed)} onChange={(event) => void control({ speed: Number(event.currentTarget.value) })}>
          {speeds.map((one) => (
            <option value={String(one)}>{one}×</option>
          ))}
          <option value="0">as fast as possible</option>
        </select>
      </label>
      {status.canSeek ? (
        <input
          type="range"
          aria-label="Moment of the recording"
          aria-valuetext={`${duration(status.nowS - from)} of ${duration(to - from)}`}
          min={from}
          max={to}
          step="any"
          value={dragged ?? status.nowS}
          onInput={(event) => setDragged(Number(event.currentTarget.value))}
          onChange={(event) => {
            void control({ seekS: Number(event.currentTarget.value) })
            setDragged(null)
          }}
        />
      ) : (
        <progress aria-label="Time of the run" max={to - from} value={status.nowS - from} />
      )}
      <span class="dim">
        {duration((dragged ?? status.nowS) - from)} of {duration(to - from)}
      </span>
      <Problem text={problem} />
    </div>
  )
}

function SignIn(props: { why: string }): JSX.Element {
  const [token, put] = useState('')
  return (
    <section aria-label="Sign in">
      <h1>Sign in</h1>
      <Problem text={props.why} />
      <p>
        The dashboard shows the objects that you may list in the cluster. Get a token with <code>kubectl create token SERVICEACCOUNT</code>; it is kept in this tab only.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          setToken(token)
          stream.restart()
        }}
      >
        <label>
          Token <input type="password" autocomplete="off" value={token} onInput={(event) => put(event.currentTarget.value)} />
        </label>
        <button type="submit">Sign in</button>
      </form>
    </section>
  )
}
