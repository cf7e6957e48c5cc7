// Scheduling decisions: about one pod with the runners-up, and about all pods.
import { Fragment, type JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { count, moment } from './format'
import { model } from './model'
import { Empty, Problem, Table, useAnswer } from './parts'
import { go } from './route'
import type { Decision, Decisions, DecisionSummary } from './wire'

const OUTCOMES: Record<string, string> = {
  bound: 'bound',
  unschedulable: 'unschedulable',
  failed: 'binding failed',
  evicted: 'evicted',
  moved: 'moved',
  stays: 'not moved',
  'node-closed': 'node closed',
  'node-open': 'node open again',
}
const MAX_PER_POD = 20

/** Similar decisions, such as the attempts of one pod. */
interface Run {
  newest: Decision
  oldest: Decision
  many: number
}

/** Merge decisions about a pod or job that differ only in numbers, newest first; `inOrder`: only consecutive ones. */
function runsOf(entries: Decision[], inOrder: boolean): Run[] {
  const found = new Map<string, Run>()
  let [last, sequence] = ['', 0]
  for (const one of entries) {
    const key = mergeKey(one)
    if (inOrder && key !== last) sequence += 1
    last = key
    const known = found.get(`${sequence} ${key}`)
    if (known) {
      known.oldest = one
      known.many += 1
    } else found.set(`${sequence} ${key}`, { newest: one, oldest: one, many: 1 })
  }
  return [...found.values()]
}

function mergeKey(one: Decision): string {
  const reason = (one.reason ?? '').replace(/\d+/g, '#')
  return [one.outcome, one.job || one.pods.map(([pod]) => pod).join(), one.node ?? '', one.plugin ?? '', reason, one.by ?? '', one.pods[0]?.[1] ?? ''].join('\n')
}

const SHORT = 160 // characters of a reason

/** Reason of a decision; a long one is cut and can be opened. */
function Reason(props: { text: string }): JSX.Element {
  const { text } = props
  return text.length <= SHORT ? (
    <>{text}</>
  ) : (
    <details>
      <summary>{text.slice(0, SHORT)} …</summary>
      {text}
    </details>
  )
}

/** The decisions about one pod, newest first. */
export function PodDecisions(props: { pod: string }): JSX.Element {
  const { answer, problem } = useAnswer<Decisions>('decisions', { pod: props.pod }, 5000)
  const job = answer?.entries.find((one) => one.job)?.job
  return (
    <>
      <h3>Decisions</h3>
      <Problem text={problem} />
      {answer && !answer.isKept && <p class="dim">{answer.title}</p>}
      {answer?.isKept && answer.entries.length === 0 && <p class="dim">No decisions are kept by {answer.title}.</p>}
      <ol class="decisions">
        {answer &&
          runsOf(answer.entries, true)
            .slice(0, MAX_PER_POD)
            .map((run) => <OneDecision run={run} pod={props.pod} />)}
      </ol>
      {job && (
        <p>
          <a href={`#/time/${encodeURIComponent(job)}`}>All decisions about {job}</a>
        </p>
      )}
    </>
  )
}

function OneDecision(props: { run: Run; pod: string }): JSX.Element {
  const { newest, oldest, many } = props.run
  const own = newest.pods.find(([pod]) => pod === props.pod)
  const [node, attempt] = [own?.[1] || newest.node || '', own?.[2] ?? 0]
  const together = newest.pods.length + newest.morePods
  return (
    <li class={newest.outcome === 'bound' || newest.outcome === 'moved' ? '' : 'failure'}>
      <span class="at">
        {many > 1 && `${when(oldest)} – `}
        {when(newest)}
      </span>{' '}
      <strong>{OUTCOMES[newest.outcome] ?? newest.outcome}</strong>
      {many > 1 && ` ${count(many)}×`}
      {node && (
        <>
          {' '}
          <a href={`#/map/${encodeURIComponent(node)}`}>{node}</a>
        </>
      )}
      {attempt > 1 && many === 1 && `, attempt ${attempt}`}
      {newest.by && `, for ${newest.by}`}
      {newest.reason && ': '}
      <Reason text={newest.reason ?? ''} />
      {newest.plugin && <span class="dim"> by plugin {newest.plugin}</span>}
      {together > 1 && <span class="dim"> together with {count(together - 1)} others</span>}
      {newest.best && newest.best.length > 0 && <RunnersUp best={newest.best} node={node} isFirst={newest.pods[0]?.[0] === props.pod} />}
    </li>
  )
}

/** The nodes with the highest scores; plugins whose scores differ most come first. */
function RunnersUp(props: { best: NonNullable<Decision['best']>; node: string; isFirst: boolean }): JSX.Element {
  const [first, second] = props.best
  const plugins = Object.keys(first?.scores ?? {})
  const difference = (name: string): number => Math.abs((first?.scores[name] ?? 0) - (second?.scores[name] ?? 0))
  const shown = plugins.filter((name) => props.best.some((one) => (one.scores[name] ?? 0) !== 0)).sort((a, b) => difference(b) - difference(a))
  return (
    <details>
      <summary>
        {second
          ? `Runners-up: ${props.best.slice(1).map((one) => `${one.node} ${one.total}`).join(', ')}; ${first?.node ?? ''} had ${first?.total ?? 0}`
          : 'No other node was feasible'}
      </summary>
      {!props.isFirst && <p class="dim">Scores for the first pod of this attempt.</p>}
      <Table label="Scores of the best nodes" heads={['Node', 'Total', ...shown]}>
        {props.best.map((one) => (
          <tr>
            <td>{one.node === props.node ? <strong>{one.node}</strong> : one.node}</td>
            <td>{one.total}</td>
            {shown.map((name) => (
              <td>{one.scores[name] ?? 0}</td>
            ))}
          </tr>
        ))}
      </Table>
    </details>
  )
}

/** All decisions, or those that match a text. */
export function AllDecisions(props: { text: string }): JSX.Element {
  const [text, setText] = useState(props.text)
  const [outcome, setOutcome] = useState('')
  const [within, setWithin] = useState(0)
  const place = useRef<HTMLDivElement>(null)
  useEffect(() => setText(props.text), [props.text])
  const since = within ? String(Math.floor((model.status.nowS - within) / 10) * 10) : ''
  const { answer, problem } = useAnswer<Decisions>('decisions', { text, outcome, since }, 5000)
  const [known, setKnown] = useState<Decisions | null>(null)
  if (answer && answer !== known) setKnown(answer)
  const shown = answer ?? known
  const isThere = shown !== null
  useEffect(() => {
    if (props.text && isThere) place.current?.scrollIntoView()
  }, [props.text, isThere])
  const find = (wanted: string): void => {
    setText(wanted)
    if (props.text && wanted !== props.text) go('time')
  }
  if (shown && !shown.isKept) return <section aria-label="Decisions"><h2>Decisions</h2><Empty>{shown.title}</Empty></section>
  return (
    <section aria-label="Decisions">
      <div class="tools" ref={place}>
        <h2>Decisions</h2>
        <label>
          about <input type="search" placeholder="pod, job or node" value={text} onInput={(event) => find(event.currentTarget.value)} />
        </label>
        <label>
          outcome{' '}
          <select value={outcome} onChange={(event) => setOutcome(event.currentTarget.value)}>
            <option value="">any</option>
            {Object.entries(OUTCOMES).map(([name, words]) => (
              <option value={name}>{words}</option>
            ))}
          </select>
        </label>
        <label>
          period{' '}
          <select value={String(within)} onChange={(event) => setWithin(Number(event.currentTarget.value))}>
            <option value="0">all the time</option>
            <option value="600">the last 10 minutes</option>
            <option value="3600">the last hour</option>
          </select>
        </label>
      </div>
      <Problem text={problem} />
      {shown?.summary && <Summary summary={shown.summary} title={shown.title} find={find} />}
      {shown && shown.entries.length === 0 && <Empty>No decision matches.</Empty>}
      {shown && shown.entries.length > 0 && <Entries entries={shown.entries} count={shown.count} />}
    </section>
  )
}

function Entries(props: { entries: Decision[]; count: number }): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const runs = runsOf(props.entries, false)
  return (
    <>
      <Table label="Decisions, newest first" heads={['Time', 'Outcome', 'Pods', 'Node', 'Plugin', 'Reason']}>
        {runs.slice(0, isOpen ? runs.length : FIRST).map(({ newest, oldest, many }) => (
          <tr>
            <td>
              {many > 1 && `${when(oldest)} – `}
              {when(newest)}
            </td>
            <td>
              {OUTCOMES[newest.outcome] ?? newest.outcome}
              {many > 1 && ` ${count(many)}×`}
            </td>
            <td>
              <Pods one={newest} />
            </td>
            <td>
              <Nodes one={newest} />
            </td>
            <td>{newest.plugin || '–'}</td>
            <td>
              {newest.by && `for ${newest.by} `}
              <Reason text={newest.reason ?? ''} />
              {!newest.reason && newest.best && newest.best.length > 1 && `best of ${newest.best.map((one) => `${one.node} ${one.total}`).join(', ')}`}
            </td>
          </tr>
        ))}
      </Table>
      {runs.length > FIRST && (
        <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? 'fewer' : `all ${count(runs.length)} lines`}
        </button>
      )}
      {isOpen && props.count > props.entries.length && (
        <p class="dim">
          The newest {count(props.entries.length)} of {count(props.count)}.
        </p>
      )}
    </>
  )
}

const NAMED = 3
const FIRST = 20

function Pods(props: { one: Decision }): JSX.Element {
  const { pods, morePods } = props.one
  const left = pods.length - NAMED + morePods
  return (
    <span>
      {pods.slice(0, NAMED).map(([pod], place) => (
        <Fragment key={pod}>
          {place > 0 && ', '}
          <a href={`#/waiting/${encodeURIComponent(pod)}`}>{pod}</a>
        </Fragment>
      ))}
      {left > 0 && ` and ${count(left)} more`}
    </span>
  )
}

function Nodes(props: { one: Decision }): JSX.Element {
  const names = [...new Set([props.one.node ?? '', ...props.one.pods.map(([, node]) => node)])].filter(Boolean)
  return (
    <span>
      {names.slice(0, NAMED).map((name, place) => (
        <Fragment key={name}>
          {place > 0 && ', '}
          <a href={`#/map/${encodeURIComponent(name)}`}>{name}</a>
        </Fragment>
      ))}
      {names.length > NAMED && ` and ${count(names.length - NAMED)} more`}
      {names.length === 0 && '–'}
    </span>
  )
}

function Summary(props: { summary: DecisionSummary; title: string; find: (text: string) => void }): JSX.Element | null {
  const { summary } = props
  if (summary.entries === 0) return null
  const pods = Object.entries(summary.pods).map(([name, many]) => `${OUTCOMES[name] ?? name} ${count(many)}×`)
  return (
    <>
      <p class="dim">
        By {props.title}, {moment(summary.fromS, model.status.isVirtual)} to {moment(summary.toS, model.status.isVirtual)}
        {pods.length > 0 && `; pods: ${pods.join(', ')}`}
        {Object.keys(summary.decisive).length > 0 && `; rejected by: ${Object.entries(summary.decisive).map(([name, many]) => `${name} ${count(many)}×`).join(', ')}`}
      </p>
      {summary.rejected.length > 0 && (
        <details>
          <summary>Jobs rejected most often</summary>
          <Table label="Jobs rejected most often" heads={['Job', 'Times', 'Pods', 'Plugin', 'Reason']}>
            {summary.rejected.map((one) => (
              <tr>
                <td>
                  <button type="button" class="link" onClick={() => props.find(one.job)}>
                    {one.job}
                  </button>
                </td>
                <td>{count(one.rejections)}</td>
                <td>{count(one.pods)}</td>
                <td>{one.plugin}</td>
                <td>{one.reason}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
      {summary.flapping.length > 0 && (
        <details>
          <summary>Nodes that closed repeatedly</summary>
          <Table label="Nodes that closed repeatedly" heads={['Node', 'Times', 'Reason']}>
            {summary.flapping.map((one) => (
              <tr>
                <td>
                  <a href={`#/map/${encodeURIComponent(one.node)}`}>{one.node}</a>
                </td>
                <td>{count(one.closed)}</td>
                <td>{one.reason}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
      {summary.slowest.length > 0 && (
        <details>
          <summary>Slowest plugins</summary>
          <Table label="Slowest plugins" heads={['Plugin', 'Point', 'Share', 'µs per pod']}>
            {summary.slowest.map((one) => (
              <tr>
                <td>{one.plugin}</td>
                <td>{one.point}</td>
                <td>{Math.round(one.share * 100)} %</td>
                <td>{((one.seconds / Math.max(one.pods, 1)) * 1e6).toFixed(1)}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
    </>
  )
}

function when(one: Decision): string {
  return moment(one.atS, model.status.isVirtual)
}
