// What was decided: of one pod with the nodes that came next, and of all of them.
import { Fragment, type JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { count, moment } from './format'
import { model } from './model'
import { Empty, Problem, Table, useAnswer } from './parts'
import { go } from './route'
import type { Decision, Decisions, DecisionSummary } from './wire'

const OUTCOMES: Record<string, string> = {
  bound: 'got a node',
  unschedulable: 'found no node',
  failed: 'did not come true',
  evicted: 'had to go',
  moved: 'was moved',
  stays: 'was to be moved, and stays',
  'node-closed': 'takes no new pods',
  'node-open': 'takes pods again',
}
const MOST_OF_A_POD = 20

/** What says the same: tries of one pod, say. */
interface Run {
  newest: Decision
  oldest: Decision
  many: number
}

/** Put together what says the same of one pod or job but for numbers, the newest first; `inOrder`: only what follows on one another. */
function runsOf(entries: Decision[], inOrder: boolean): Run[] {
  const found = new Map<string, Run>()
  let [last, turn] = ['', 0]
  for (const one of entries) {
    const words = said(one)
    if (inOrder && words !== last) turn += 1
    last = words
    const known = found.get(`${turn} ${words}`)
    if (known) {
      known.oldest = one
      known.many += 1
    } else found.set(`${turn} ${words}`, { newest: one, oldest: one, many: 1 })
  }
  return [...found.values()]
}

function said(one: Decision): string {
  const reason = (one.reason ?? '').replace(/\d+/g, '#')
  return [one.outcome, one.job || one.pods.map(([pod]) => pod).join(), one.node ?? '', one.plugin ?? '', reason, one.by ?? '', one.pods[0]?.[1] ?? ''].join('\n')
}

const SHORT = 160 // characters of a reason

/** A long reason is cut, and opens. */
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
      <h3>What was decided</h3>
      <Problem text={problem} />
      {answer && !answer.isKept && <p class="dim">{answer.title}</p>}
      {answer?.isKept && answer.entries.length === 0 && <p class="dim">Nothing yet, as far as {answer.title} remembers.</p>}
      <ol class="decisions">
        {answer &&
          runsOf(answer.entries, true)
            .slice(0, MOST_OF_A_POD)
            .map((run) => <OneDecision run={run} pod={props.pod} />)}
      </ol>
      {job && (
        <p>
          <a href={`#/time/${encodeURIComponent(job)}`}>All that was decided about {job}</a>
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
      {attempt > 1 && many === 1 && `, at try ${attempt}`}
      {newest.by && `, for ${newest.by}`}
      {newest.reason && ': '}
      <Reason text={newest.reason ?? ''} />
      {newest.plugin && <span class="dim"> decided by {newest.plugin}</span>}
      {together > 1 && <span class="dim"> together with {count(together - 1)} others</span>}
      {newest.best && newest.best.length > 0 && <RunnersUp best={newest.best} node={node} isFirst={newest.pods[0]?.[0] === props.pod} />}
    </li>
  )
}

/** The nodes with the highest scores, with the plugins in which they differ. */
function RunnersUp(props: { best: NonNullable<Decision['best']>; node: string; isFirst: boolean }): JSX.Element {
  const [first, second] = props.best
  const plugins = Object.keys(first?.scores ?? {})
  const apart = (name: string): number => Math.abs((first?.scores[name] ?? 0) - (second?.scores[name] ?? 0))
  const telling = plugins.filter((name) => props.best.some((one) => (one.scores[name] ?? 0) !== 0)).sort((a, b) => apart(b) - apart(a))
  return (
    <details>
      <summary>
        {second
          ? `Next best: ${props.best.slice(1).map((one) => `${one.node} ${one.total}`).join(', ')}; ${first?.node ?? ''} had ${first?.total ?? 0}`
          : 'No other node would have taken it'}
      </summary>
      {!props.isFirst && <p class="dim">As the first pod of this attempt was decided, just before.</p>}
      <Table label="Scores of the best nodes" heads={['Node', 'Total', ...telling]}>
        {props.best.map((one) => (
          <tr>
            <td>{one.node === props.node ? <strong>{one.node}</strong> : one.node}</td>
            <td>{one.total}</td>
            {telling.map((name) => (
              <td>{one.scores[name] ?? 0}</td>
            ))}
          </tr>
        ))}
      </Table>
    </details>
  )
}

/** All decisions, or those about what a text names. */
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
  if (shown && !shown.isKept) return <section aria-label="Decisions"><h2>What was decided</h2><Empty>{shown.title}</Empty></section>
  return (
    <section aria-label="Decisions">
      <div class="tools" ref={place}>
        <h2>What was decided</h2>
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
          when{' '}
          <select value={String(within)} onChange={(event) => setWithin(Number(event.currentTarget.value))}>
            <option value="0">all the time</option>
            <option value="600">the last 10 minutes</option>
            <option value="3600">the last hour</option>
          </select>
        </label>
      </div>
      <Problem text={problem} />
      {shown?.summary && <Summary summary={shown.summary} title={shown.title} find={find} />}
      {shown && shown.entries.length === 0 && <Empty>Nothing like that was decided.</Empty>}
      {shown && shown.entries.length > 0 && <Entries entries={shown.entries} count={shown.count} />}
    </section>
  )
}

function Entries(props: { entries: Decision[]; count: number }): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const runs = runsOf(props.entries, false)
  return (
    <>
      <Table label="Decisions, newest first" heads={['When', 'What', 'Who', 'Node', 'Decided by', 'Why']}>
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
              <Who one={newest} />
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

function Who(props: { one: Decision }): JSX.Element {
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
        {Object.keys(summary.decisive).length > 0 && `; who refused them: ${Object.entries(summary.decisive).map(([name, many]) => `${name} ${count(many)}×`).join(', ')}`}
      </p>
      {summary.rejected.length > 0 && (
        <details>
          <summary>Jobs that were refused most often</summary>
          <Table label="Jobs that were refused most often" heads={['Job', 'Times', 'Pods', 'By', 'Why']}>
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
          <summary>Nodes that closed again and again</summary>
          <Table label="Nodes that closed again and again" heads={['Node', 'Times', 'Why']}>
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
          <summary>Plugins that took the most time</summary>
          <Table label="Plugins that took the most time" heads={['Plugin', 'Point', 'Share', 'µs per pod']}>
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
