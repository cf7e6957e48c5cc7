// Pending pods by cause, and the explanation of one pod.
import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { PodDecisions } from '../decisions'
import { age, count, moment } from '../format'
import { model } from '../model'
import { Empty, Problem, Table, useAnswer } from '../parts'
import { go } from '../route'
import type { Cause, Explanation, Forecast, FoundPods, NamedPod } from '../wire'

export function Waiting(props: { pod: string }): JSX.Element {
  const [filter, setFilter] = useState('')
  const [order, setOrder] = useState<'most' | 'longest'>('most')
  const wanted = filter.trim().toLowerCase()
  const found = model.waiting.filter(
    (one) =>
      !wanted ||
      one.cause.toLowerCase().includes(wanted) ||
      one.namespaces.some((name) => name.toLowerCase().includes(wanted)) ||
      one.named.some((pod) => pod.pod.toLowerCase().includes(wanted)),
  )
  const causes = order === 'longest' ? [...found].sort((a, b) => a.oldestS - b.oldestS) : found
  return (
    <div class="columns">
      <section aria-label="Causes">
        <div class="tools">
          <h1>Pending pods</h1>
          {model.waiting.length > 1 && (
            <label>
              order{' '}
              <select value={order} onChange={(event) => setOrder(event.currentTarget.value as 'most' | 'longest')}>
                <option value="most">most pods first</option>
                <option value="longest">longest waiting first</option>
              </select>
            </label>
          )}
          <input
            type="search"
            data-search
            aria-label="Find a cause, namespace or pod"
            placeholder="find: cause, namespace, pod ( / )"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </div>
        {model.number > 0 && model.totals.waiting === 0 && <Empty>No pod is pending.</Empty>}
        {causes.map((one) => (
          <CauseCard key={one.cause} cause={one} chosen={props.pod} wanted={wanted} />
        ))}
        {model.totals.causes > model.waiting.length && (
          <p class="dim">and {count(model.totals.causes - model.waiting.length)} other causes with fewer pods</p>
        )}
        {wanted && <OtherPods wanted={wanted} chosen={props.pod} isAlone={causes.length === 0} />}
      </section>
      <section aria-label="Explanation" class="detail">
        {props.pod ? <PodDetails pod={props.pod} /> : <Empty>Choose a pod to see its explanation.</Empty>}
      </section>
    </div>
  )
}

/** Placed pods by a part of their names; queried after a pause in typing. */
function OtherPods(props: { wanted: string; chosen: string; isAlone: boolean }): JSX.Element | null {
  const [asked, setAsked] = useState('')
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(props.wanted), 200)
    return () => window.clearTimeout(timer)
  }, [props.wanted])
  const { answer } = useAnswer<FoundPods>('find', asked ? { text: asked } : null, 10_000)
  const found = answer?.pods.filter((one) => one.node) ?? []
  if (found.length === 0) return answer && props.isAlone ? <Empty>No cause, namespace or pod matches.</Empty> : null
  return (
    <article class="card">
      <h2>Matching pods with a node</h2>
      <ul class="pods">
        {found.map((one) => (
          <li key={one.pod}>
            <a href={`#/waiting/${encodeURIComponent(one.pod)}`} aria-current={one.pod === props.chosen ? 'true' : undefined}>
              <span class="name">{one.pod}</span>
              <span class="dim">{one.node}</span>
            </a>
          </li>
        ))}
      </ul>
      {answer && answer.count > answer.pods.length && <p class="dim">{count(answer.count)} pods match.</p>}
    </article>
  )
}

const NAMED = 3

function someOf(names: string[]): string {
  const left = names.length - NAMED
  return names.slice(0, NAMED).join(', ') + (left > 0 ? ` and ${count(left)} more` : '')
}

/** Merge consecutive members of a gang into one line. */
function byGang(pods: NamedPod[]): { first: NamedPod; many: number }[] {
  const found: { first: NamedPod; many: number }[] = []
  for (const one of pods) {
    const last = found[found.length - 1]
    if (last && one.gang && last.first.gang === one.gang) last.many += 1
    else found.push({ first: one, many: 1 })
  }
  return found
}

function CauseCard(props: { cause: Cause; chosen: string; wanted: string }): JSX.Element {
  const { cause } = props
  const [isOpen, setOpen] = useState(false)
  const all = useAnswer<{ pods: NamedPod[] }>('waiting', isOpen ? { cause: cause.cause } : null, 5000)
  const pods = (all.answer?.pods ?? cause.named).filter((one) => !props.wanted || `${one.pod} ${cause.cause}`.toLowerCase().includes(props.wanted))
  const lines = byGang(pods)
  const shown = isOpen ? lines : lines.slice(0, NAMED)
  const longest = age(model.status.nowS - cause.oldestS)
  return (
    <article class="card">
      <h2>
        <span class="number">{count(cause.pods)}</span> {cause.pods === 1 ? 'pod' : 'pods'}: {cause.cause}
      </h2>
      <p class="facts">
        longest {longest}
        {cause.gangs > 0 && ` · ${cause.gangs} ${cause.gangs === 1 ? 'gang' : 'gangs'}`}
        {cause.plugins.length > 0 && ` · ${someOf([...new Set(cause.plugins.flatMap((one) => one.split(', ')))])}`}
        {` · ${someOf(cause.namespaces)}`}
      </p>
      {cause.help && (
        <p class="help">
          <strong>Remedy:</strong> {cause.help}
        </p>
      )}
      <ul class="pods">
        {shown.map(({ first: one, many }) => (
          <li key={one.pod}>
            <a href={`#/waiting/${encodeURIComponent(one.pod)}`} aria-current={one.pod === props.chosen ? 'true' : undefined}>
              <span class="name">
                {one.pod}
                {many > 1 && <span class="dim"> and {pods.length < cause.pods ? 'others' : count(many - 1)} of its gang</span>}
              </span>
              <span class="dim">
                {age(model.status.nowS - one.sinceS)}
                {one.position > 0 && ` · place ${one.position}`}
                {(one.attempts ?? 0) > 0 && ` · tried ${one.attempts}×`}
              </span>
            </a>
          </li>
        ))}
      </ul>
      {cause.pods > NAMED && (
        <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? 'fewer' : `all ${count(cause.pods)}`}
        </button>
      )}
    </article>
  )
}

function PodDetails(props: { pod: string }): JSX.Element {
  const { answer: explanation, problem } = useAnswer<Explanation>('pod', { name: props.pod }, 3000)
  return (
    <>
      <div class="tools">
        <h2 class="name">{props.pod}</h2>
        <button type="button" onClick={() => go('waiting')}>
          close
        </button>
      </div>
      <Problem text={problem} />
      {explanation && <Explained explanation={explanation} />}
      {(explanation || problem) && <PodDecisions key={props.pod} pod={props.pod} />}
      {!explanation && !problem && <Empty>Querying the scheduler …</Empty>}
    </>
  )
}

function Explained(props: { explanation: Explanation }): JSX.Element {
  const { explanation } = props
  const causes = explanation.causes ?? []
  return (
    <>
      <p class={`verdict ${explanation.verdict}`}>
        <strong>{explanation.verdict}</strong>: {explanation.summary}
      </p>
      {explanation.queue?.since && (
        <p>
          Pending since {since(explanation.queue.since)}. <Start pod={explanation.pod} />
        </p>
      )}
      {explanation.remedies && explanation.remedies.length > 0 && (
        <>
          <h3>Remedies, smallest first</h3>
          <ul>
            {explanation.remedies.map((one) => (
              <li>
                {one.text}
                {one.tried === false ? ' (not tried)' : one.sufficient === false ? ' (not enough alone)' : ''}
              </li>
            ))}
          </ul>
        </>
      )}
      {causes.length > 0 && (
        <>
          <h3>Causes</h3>
          <ul>
            {causes.map((one) => (
              <li class={one.decisive === false ? 'dim' : ''}>
                {one.nodes ? <strong>{count(one.nodes)} {one.nodes === 1 ? 'node' : 'nodes'}: </strong> : null}
                {one.sentence || one.reason}
                {one.detail ? ` (${one.on?.[0] ? `${one.on[0]}: ` : ''}${one.detail})` : ''} <span class="dim">{one.plugin}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {explanation.nearest && explanation.nearest.length > 0 && (
        <>
          <h3>Nearest nodes</h3>
          <Table label="Nearest nodes" heads={['Node', 'Shortfall', 'Reasons']}>
            {explanation.nearest.map((one) => (
              <tr>
                <td>
                  <a href={`#/map/${encodeURIComponent(one.node)}`}>{one.node}</a>
                </td>
                <td>{Object.entries(one.lacks ?? {}).map(([name, amount]) => `${amount} ${name}`).join(', ') || '–'}</td>
                <td>{(one.details ?? one.reasons).join('; ')}</td>
              </tr>
            ))}
          </Table>
        </>
      )}
      {explanation.scores && explanation.scores.length > 0 && <Scores scores={explanation.scores} />}
      {explanation.emptyCluster && !explanation.emptyCluster.fits && <p>It does not fit an empty cluster either: {explanation.emptyCluster.why}</p>}
      {explanation.queue && (
        <>
          <h3>Queue</h3>
          <p>
            {explanation.queue.state}, place {explanation.queue.position}; tried {explanation.queue.attempts ?? 0}×
            {explanation.queue.ahead && explanation.queue.ahead.length > 0 && `; ahead of it: ${explanation.queue.ahead.join(', ')}`}
          </p>
          {explanation.queue.wokenBy && explanation.queue.wokenBy.length > 0 && <p class="dim">Retried after: {explanation.queue.wokenBy.join('; ')}</p>}
        </>
      )}
      {explanation.lastMessage && (
        <details>
          <summary>Message of the scheduler</summary>
          <p class="mono">{explanation.lastMessage}</p>
        </details>
      )}
    </>
  )
}

function since(at: string): string {
  const atS = Date.parse(at) / 1000
  return `${moment(atS, model.status.isVirtual)}, for ${age(model.status.nowS - atS)}`
}

/** Expected start of a pod; computed on request, as it simulates a copy of the cluster. */
function Start(props: { pod: string }): JSX.Element {
  const [asked, setAsked] = useState('')
  const { answer, problem } = useAnswer<Forecast>('start', asked === props.pod ? { name: props.pod } : null, 60_000)
  if (asked !== props.pod)
    return (
      <button type="button" onClick={() => setAsked(props.pod)}>
        When would it start?
      </button>
    )
  if (problem) return <Problem text={problem} />
  if (!answer) return <span>Simulating …</span>
  return (
    <strong role="status">
      {answer.at
        ? `Expected to start at ${moment(Date.parse(answer.at) / 1000, model.status.isVirtual)} on ${answer.node ?? ''}, if no other pod arrives.`
        : `The start is unknown: ${answer.why ?? ''}.`}
    </strong>
  )
}

function Scores(props: { scores: NonNullable<Explanation['scores']> }): JSX.Element {
  const plugins = Object.keys(props.scores[0]?.plugins ?? {})
  return (
    <>
      <h3>Feasible nodes by score</h3>
      <Table label="Scores" heads={['Node', 'Total', ...plugins]}>
        {props.scores.map((one) => (
          <tr>
            <td>{one.node}</td>
            <td>{one.total}</td>
            {plugins.map((name) => (
              <td>{one.plugins[name]}</td>
            ))}
          </tr>
        ))}
      </Table>
    </>
  )
}
