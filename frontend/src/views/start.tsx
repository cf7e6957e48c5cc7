// The first page: whether the cluster is healthy, what it consists of, and the way to each view.
import type { JSX } from 'preact'
import { count, percent } from '../format'
import { ABOUT } from '../help'
import { model, valueOf } from '../model'
import { Bar, Problem, Table, useAnswer } from '../parts'
import type { View } from '../route'
import type { Attention } from '../wire'

const MOST_LISTED = 3
const MOST_POOLS = 20

export function Start(props: { views: View[]; titles: Record<View, string> }): JSX.Element {
  const { answer, problem } = useAnswer<Attention>('attention', model.number > 0 ? {} : null, 3000)
  return (
    <section aria-label="Start">
      <h1>{model.title}</h1>
      <Problem text={problem} />
      {answer && <Problems attention={answer} />}
      {model.number > 0 && <WaitingPods />}
      {model.totals.nodes > 0 && <Pools />}
      <h2>Views</h2>
      <dl class="views">
        {props.views.map((view) => (
          <>
            <dt>
              <a href={`#/${view}`}>{props.titles[view]}</a>
            </dt>
            <dd>{ABOUT[view].text}</dd>
          </>
        ))}
      </dl>
      <p>
        <a href="docs/dashboard.md" target="_blank" rel="noreferrer">
          Documentation of this dashboard
        </a>
      </p>
    </section>
  )
}

function Problems(props: { attention: Attention }): JSX.Element {
  const { items, notLookedAt } = props.attention
  const texts = [...new Set(items.map((one) => `${one.topic}: ${one.text}`))]
  const errors = items.filter((one) => one.severity === 'error').length
  const left = Object.keys(notLookedAt)
  return (
    <article class={`card ${items.length === 0 ? 'good' : errors > 0 ? 'error' : 'warning'}`}>
      <h2>
        {items.length === 0 ? 'Healthy: nothing needs a person.' : <a href="#/attention">{`${count(items.length)} ${items.length === 1 ? 'problem needs' : 'problems need'} a person`}</a>}
      </h2>
      {texts.length > 0 && (
        <ul>
          {texts.slice(0, MOST_LISTED).map((text) => (
            <li>{text}</li>
          ))}
          {texts.length > MOST_LISTED && <li>{count(texts.length - MOST_LISTED)} more</li>}
        </ul>
      )}
      {left.length > 0 && <p class="dim">Not checked: {left.join('; ')}.</p>}
    </article>
  )
}

function WaitingPods(): JSX.Element {
  const { waiting } = model.totals
  return (
    <article class={`card ${waiting === 0 ? 'good' : 'warning'}`}>
      <h2>{waiting === 0 ? 'No pod is pending.' : <a href="#/waiting">{`${count(waiting)} pending ${waiting === 1 ? 'pod' : 'pods'}`}</a>}</h2>
      {waiting > 0 && (
        <ul>
          {model.waiting.slice(0, MOST_LISTED).map((one) => (
            <li>
              {count(one.pods)}: {one.cause}
              {one.help && <span class="help"> Remedy: {one.help}</span>}
            </li>
          ))}
          {model.totals.causes > MOST_LISTED && <li>{count(model.totals.causes - MOST_LISTED)} other causes</li>}
        </ul>
      )}
    </article>
  )
}

interface Pool {
  nodes: number
  gpus: number
  pods: number
  sums: Record<string, [number, number]> // thousandths of all nodes that know them, and their number
}

const SHARES = ['cpu', 'memory', 'gpu'] as const

/** Nodes by pool, with the means of their shares. */
function Pools(): JSX.Element {
  const pools = new Map<string, Pool>()
  model.nodes.names.forEach((_, row) => {
    const name = model.nodes.pools[row] || 'no pool'
    const pool = pools.get(name) ?? { nodes: 0, gpus: 0, pods: 0, sums: {} }
    pools.set(name, pool)
    pool.nodes += 1
    pool.gpus += model.nodes.gpus[row] ?? 0
    pool.pods += Math.max(0, valueOf(row, 'pods'))
    for (const one of SHARES) {
      const value = valueOf(row, one)
      const [sum, known] = pool.sums[one] ?? [0, 0]
      if (value >= 0) pool.sums[one] = [sum + value, known + 1]
    }
  })
  const named = [...pools].sort((a, b) => b[1].nodes - a[1].nodes || (a[0] < b[0] ? -1 : 1))
  const hasGpus = named.some(([, pool]) => pool.gpus > 0)
  const cell = (pool: Pool, one: (typeof SHARES)[number]): JSX.Element => {
    const [sum, known] = pool.sums[one] ?? [0, 0]
    const mean = Math.round(sum / (known || 1))
    return known > 0 ? (
      <td>
        <span>
          {percent(mean)} <Bar label={one} value={mean} text={percent(mean)} />
        </span>
      </td>
    ) : (
      <td>–</td>
    )
  }
  return (
    <>
      <h2>Nodes</h2>
      <Table label="Pools of nodes" heads={['Pool', 'Nodes', ...(hasGpus ? ['GPUs'] : []), 'Pods', 'CPU allocated', 'Memory allocated', ...(hasGpus ? ['GPUs allocated'] : [])]}>
        {named.slice(0, MOST_POOLS).map(([name, pool]) => (
          <tr>
            <td>
              <a href="#/map">{name}</a>
            </td>
            <td>{count(pool.nodes)}</td>
            {hasGpus && <td>{count(pool.gpus)}</td>}
            <td>{count(pool.pods)}</td>
            {cell(pool, 'cpu')}
            {cell(pool, 'memory')}
            {hasGpus && cell(pool, 'gpu')}
          </tr>
        ))}
      </Table>
      {named.length > MOST_POOLS && <p class="dim">{count(named.length - MOST_POOLS)} more pools</p>}
    </>
  )
}
