// What waits: by cause, and the whole explanation of one pod.
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
          <h1>What waits</h1>
          {model.waiting.length > 1 && (
            <label>
              first{' '}
              <select value={order} onChange={(event) => setOrder(event.currentTarget.value as 'most' | 'longest')}>
                <option value="most">what most wait for</option>
                <option value="longest">what is waited for longest</option>
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
        {model.number > 0 && model.totals.waiting === 0 && <Empty>No pod waits.</Empty>}
        {causes.map((one) => (
          <CauseCard key={one.cause} cause={one} chosen={props.pod} wanted={wanted} />
        ))}
        {model.totals.causes > model.waiting.length && (
          <p class="dim">and {count(model.totals.causes - model.waiting.length)} other causes, of fewer pods each</p>
        )}
        {wanted && <OtherPods wanted={wanted} chosen={props.pod} isAlone={causes.length === 0} />}
      </section>
      <section aria-label="Explanation" class="detail">
        {props.pod ? <Told pod={props.pod} /> : <Empty>Choose a pod to see all that is known of its waiting.</Empty>}
      </section>
    </div>
  )
}

/** Pods that don't wait, by a part of their names; asked for once somebody has stopped typing. */
function OtherPods(props: { wanted: string; chosen: string; isAlone: boolean }): JSX.Element | null {
  const [asked, setAsked] = useState('')
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(props.wanted), 200)
    return () => window.clearTimeout(timer)
  }, [props.wanted])
  const { answer } = useAnswer<FoundPods>('find', asked ? { text: asked } : null, 10_000)
  const found = answer?.pods.filter((one) => one.node) ?? []
  if (found.length === 0) return answer && props.isAlone ? <Empty>No cause, namespace or pod is called so.</Empty> : null
  return (
    <article class="card">
      <h2>Pods with a node that are called so</h2>
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
      {answer && answer.count > answer.pods.length && <p class="dim">{count(answer.count)} pods are called so.</p>}
    </article>
  )
}

const NAMED = 3

function someOf(names: string[]): string {
  const left = names.length - NAMED
  return names.slice(0, NAMED).join(', ') + (left > 0 ? ` and ${count(left)} more` : '')
}

/** Members of a gang that follow on one another are one line. */
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
          <strong>Would help:</strong> {cause.help}
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

function Told(props: { pod: string }): JSX.Element {
  const { answer: told, problem } = useAnswer<Explanation>('pod', { name: props.pod }, 3000)
  return (
    <>
      <div class="tools">
        <h2 class="name">{props.pod}</h2>
        <button type="button" onClick={() => go('waiting')}>
          close
        </button>
      </div>
      <Problem text={problem} />
      {told && <Explained told={told} />}
      {(told || problem) && <PodDecisions key={props.pod} pod={props.pod} />}
      {!told && !problem && <Empty>Asking the scheduler …</Empty>}
    </>
  )
}

function Explained(props: { told: Explanation }): JSX.Element {
  const { told } = props
  const causes = told.causes ?? []
  return (
    <>
      <p class={`verdict ${told.verdict}`}>
        <strong>{told.verdict}</strong>: {told.summary}
      </p>
      {told.queue?.since && (
        <p>
          Waits since {since(told.queue.since)}. <Start pod={told.pod} />
        </p>
      )}
      {told.remedies && told.remedies.length > 0 && (
        <>
          <h3>What would help, the least first</h3>
          <ul>
            {told.remedies.map((one) => (
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
          <h3>What is against it</h3>
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
      {told.nearest && told.nearest.length > 0 && (
        <>
          <h3>Nearest nodes</h3>
          <Table label="Nearest nodes" heads={['Node', 'Lacks', 'What is against it']}>
            {told.nearest.map((one) => (
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
      {told.scores && told.scores.length > 0 && <Scores scores={told.scores} />}
      {told.emptyCluster && !told.emptyCluster.fits && <p>Not even if all other pods were gone: {told.emptyCluster.why}</p>}
      {told.queue && (
        <>
          <h3>Queue</h3>
          <p>
            {told.queue.state}, place {told.queue.position}; tried {told.queue.attempts ?? 0}×
            {told.queue.ahead && told.queue.ahead.length > 0 && `; before it: ${told.queue.ahead.join(', ')}`}
          </p>
          {told.queue.wokenBy && told.queue.wokenBy.length > 0 && <p class="dim">Tried again when: {told.queue.wokenBy.join('; ')}</p>}
        </>
      )}
      {told.lastMessage && (
        <details>
          <summary>The scheduler's own words</summary>
          <p class="mono">{told.lastMessage}</p>
        </details>
      )}
    </>
  )
}

function since(at: string): string {
  const atS = Date.parse(at) / 1000
  return `${moment(atS, model.status.isVirtual)}, for ${age(model.status.nowS - atS)}`
}

/** When it would start is asked for only if somebody wants to know: a copy of the cluster runs forward. */
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
  if (!answer) return <span>Running a copy forward …</span>
  return (
    <strong role="status">
      {answer.at
        ? `Expected to start at ${moment(Date.parse(answer.at) / 1000, model.status.isVirtual)} on ${answer.node ?? ''}, if nothing else comes.`
        : `When it starts is unknown: ${answer.why ?? ''}.`}
    </strong>
  )
}

function Scores(props: { scores: NonNullable<Explanation['scores']> }): JSX.Element {
  const plugins = Object.keys(props.scores[0]?.plugins ?? {})
  return (
    <>
      <h3>Nodes that would take it, by score</h3>
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
