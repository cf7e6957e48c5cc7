// Shares: quotas with usage and loans, the scheduling queue, gangs with their members.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { age, count, quantity } from '../format'
import { model } from '../model'
import { Bar, Empty, Problem, Table, useAnswer } from '../parts'
import type { Gang, Gangs, Queue, QueuedPod, Quota, Quotas } from '../wire'

const NO_LIMIT = 1e15 // larger than any cluster; treated as unlimited

export function Shares(): JSX.Element {
  const quotas = useAnswer<Quotas>('quotas', {}, 2000)
  const gangs = useAnswer<Gangs>('gangs', {}, 2000)
  const [resource, setResource] = useState('')
  const trees = (quotas.answer?.trees ?? []).map((tree) => ({ ...tree, quotas: tree.quotas.filter((one) => !isBuiltIn(one) || isOfInterest(one)) }))
  const own = trees.flatMap((tree) => tree.quotas.flatMap(flat)).filter((one) => !isBuiltIn(one))
  const resources = [...new Set(trees.flatMap((tree) => tree.quotas.flatMap(resourcesOf)))].sort()
  const limited = resources.find((name) => own.some((one) => quantity(one.min[name]) > 0 || one.max[name] !== undefined))
  const shown = resources.includes(resource) ? resource : (limited ?? resources[0] ?? 'cpu')
  return (
    <>
      <section aria-label="Quotas">
        <div class="tools">
          <h1>Quotas</h1>
          <label>
            resource{' '}
            <select value={shown} onChange={(event) => setResource(event.currentTarget.value)}>
              {resources.map((name) => (
                <option>{name}</option>
              ))}
            </select>
          </label>
        </div>
        <Problem text={quotas.problem} />
        {quotas.answer && !quotas.answer.isOn && own.length > 0 && <Empty>No profile has the plugin ElasticQuota, so these quotas are not enforced.</Empty>}
        {quotas.answer?.warnings.map((text) => <Problem text={text} />)}
        <Over quotas={own} />
        {own.length > 0 && trees.map((tree) => (
          <>
            {tree.id && <h2>Tree {tree.id}</h2>}
            <Table label={tree.id ? `Quotas of tree ${tree.id}` : "Quotas of the cluster"} heads={['Quota', 'Usage', 'Used', 'Guaranteed (min)', 'Entitled now (runtime)', 'Limit (max)', 'Borrows', 'Pending']}>
              {tree.quotas.map((one) => (
                <QuotaRows quota={one} level={0} resource={shown} total={quantity(tree.total[shown])} />
              ))}
            </Table>
          </>
        ))}
        {quotas.answer && own.length === 0 && <Empty>There are no quotas; pods are served in scheduling order.</Empty>}
      </section>
      <QueueOrder />
      <section aria-label="Gangs">
        <h1>Gangs</h1>
        <Problem text={gangs.problem} />
        {gangs.answer && gangs.answer.count === 0 && <Empty>There are no gangs.</Empty>}
        {gangs.answer && gangs.answer.count > gangs.answer.gangs.length && <p>{gangs.answer.gangs.length} of {gangs.answer.count} gangs, pending ones first.</p>}
        {gangs.answer?.gangs.map((one) => <GangCard key={one.gang} gang={one} />)}
      </section>
    </>
  )
}

/** Whether a quota is built in; the built-in ones count pods without a quota. */
function isBuiltIn(quota: Quota): boolean {
  return quota.name === 'koordinator-default-quota' || quota.name === 'koordinator-system-quota'
}

function isOfInterest(quota: Quota): boolean {
  return quota.waitingPods > 0 || Object.values(quota.used).some((amount) => quantity(amount) > 0)
}

const FIRST = 10

/** The scheduling queue in order. */
function QueueOrder(): JSX.Element {
  const { answer, problem } = useAnswer<Queue>('queue', {}, 2000)
  const [isOpen, setOpen] = useState(false)
  const pods = answer?.pods ?? []
  const rows: { first: QueuedPod; many: number }[] = []
  for (const one of pods) {
    const last = rows[rows.length - 1]
    if (last && one.gang && last.first.gang === one.gang) last.many += 1
    else rows.push({ first: one, many: 1 })
  }
  const hasQuotas = pods.some((one) => one.quota)
  return (
    <section aria-label="Queue">
      <h1>Queue</h1>
      <Problem text={problem} />
      {answer && answer.count === 0 && <Empty>The queue is empty.</Empty>}
      {pods.length > 0 && (
        <Table label="Queue, in scheduling order" heads={['Place', 'Pod', ...(hasQuotas ? ['Quota'] : []), 'Priority', 'Age', 'Attempts', 'Cause']}>
          {rows.slice(0, isOpen ? rows.length : FIRST).map(({ first: one, many }) => (
            <tr key={one.pod}>
              <td>{count(one.position)}</td>
              <td>
                <span>
                  <a href={`#/waiting/${encodeURIComponent(one.pod)}`}>{many > 1 ? one.gang : one.pod}</a>
                  {many > 1 && ` (${count(many)} pods)`}
                </span>
              </td>
              {hasQuotas && <td>{one.quota || '–'}</td>}
              <td>{one.priority ?? 0}</td>
              <td>{age(model.status.nowS - one.sinceS)}</td>
              <td>{one.attempts ?? 0}×</td>
              <td>{one.cause}</td>
            </tr>
          ))}
        </Table>
      )}
      {rows.length > FIRST && (
        <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? 'fewer' : (answer?.count ?? 0) > pods.length ? `the first ${count(pods.length)} pods of ${count(answer?.count ?? 0)}` : 'all'}
        </button>
      )}
    </section>
  )
}

function resourcesOf(quota: Quota): string[] {
  return [...Object.keys(quota.max), ...Object.keys(quota.used), ...quota.children.flatMap(resourcesOf)]
}

export function flat(quota: Quota): Quota[] {
  return [quota, ...quota.children.flatMap(flat)]
}

/** Leaf quotas above their guarantee, as sentences; the usage of parents is that of their children. */
function Over(props: { quotas: Quota[] }): JSX.Element | null {
  const over = props.quotas
    .filter((one) => one.children.length === 0)
    .flatMap((one) =>
      Object.keys(one.used)
        .filter((name) => quantity(one.used[name]) > quantity(one.min[name]))
        .map((name) => ({ quota: one, name, loans: one.borrows.filter((loan) => loan.resource === name) })),
    )
  return over.length === 0 ? null : (
    <ul aria-label="Over their guarantee" class="over">
      {over.slice(0, 20).map(({ quota, name, loans }) => (
        <li>
          <strong>{quota.name}</strong> uses {quota.used[name]} {name}, {quota.min[name] ?? '0'} guaranteed
          {loans.length > 0 && `: ${loans.map((one) => `${one.amount} ${one.from ? `borrowed from ${one.from}` : 'unassigned'}`).join(', ')}`}
        </li>
      ))}
    </ul>
  )
}

function QuotaRows(props: { quota: Quota; level: number; resource: string; total: number }): JSX.Element {
  const { quota, level, resource, total } = props
  const [used, min, may, max] = [quota.used, quota.min, quota.runtime, quota.max].map((of) => quantity(of[resource]))
  const isUnlimited = (max ?? 0) > Math.max(NO_LIMIT, 1000 * total)
  const scale = Math.max(used ?? 0, isUnlimited ? total : Math.min(max ?? 0, total || (max ?? 0)))
  const borrowed = quota.borrows.filter((one) => one.resource === resource)
  const tone = (used ?? 0) > (may ?? 0) ? 'over' : borrowed.length > 0 || (used ?? 0) > (min ?? 0) ? 'borrowing' : ''
  return (
    <>
      <tr>
        <th scope="row" style={{ paddingLeft: `${0.6 + level * 1.2}rem` }}>
          {quota.name}
        </th>
        <td>
          <Bar label={quota.name} value={used ?? 0} of={scale} mark={min ?? 0} tone={tone} text={`${quota.used[resource] ?? 0} used, ${quota.min[resource] ?? 0} guaranteed`} />
        </td>
        <td>{quota.used[resource] ?? '0'}</td>
        <td>{quota.min[resource] ?? '0'}</td>
        <td>
          {(may ?? 0) > Math.max(NO_LIMIT, 1000 * total) ? 'unlimited' : (quota.runtime[resource] ?? '0')}
          {(may ?? 0) < (min ?? 0) && <span class="dim">{whyLess(quota, min ?? 0, total)}</span>}
        </td>
        <td>{isUnlimited ? 'unlimited' : (quota.max[resource] ?? '–')}</td>
        <td>
          {borrowed.map((one) => `${one.amount} ${one.from ? `from ${one.from}` : 'unassigned'}`).join(', ') || '–'}
        </td>
        <td>
          {quota.waitingPods}
          {quota.queuePolicy && quota.queuePolicy.toLowerCase() !== 'none' && quota.waitingPods > 0 ? ` (${quota.queuePolicy})` : ''}
        </td>
      </tr>
      {quota.children.map((one) => (
        <QuotaRows quota={one} level={level + 1} resource={resource} total={total} />
      ))}
    </>
  )
}

/** Return the reason for an entitlement below the guarantee; empty if unknown. */
function whyLess(quota: Quota, min: number, total: number): string {
  if (total < min) return ': the cluster has less than the guarantee'
  return quota.waitingPods === 0 ? ': the rest is lent until pods of the quota need it' : ''
}

function GangCard(props: { gang: Gang }): JSX.Element {
  const { gang } = props
  const waits = gang.members.find((one) => !one.node)
  return (
    <details class="card">
      <summary>
        <strong class="name">{gang.gang}</strong> needs {gang.minMember} members, has {gang.present}, bound {gang.bound}
        {gang.queuePosition !== null && `, place ${gang.queuePosition} in its queue`}
        {gang.why && <span class="dim"> {gang.why}</span>}
      </summary>
      {waits && (
        <p>
          <a href={`#/waiting/${encodeURIComponent(waits.pod)}`}>Why is it pending, and what would help?</a>
        </p>
      )}
      {gang.complaints.map((text) => <Problem text={text} />)}
      {gang.network.map((layer) => (
        <p class="dim">
          {layer.layer}
          {layer.strategy ? ` (${layer.strategy})` : ''}: {Object.entries(layer.domains).map(([name, many]) => `${name} ${many}`).join(', ') || 'no members yet'}
        </p>
      ))}
      <Table label={`Members of ${gang.gang}`} heads={['Pod', 'State', 'Node', 'Network domain', 'Reason']}>
        {gang.members.map((one) => (
          <tr>
            <td>{one.node ? one.pod : <a href={`#/waiting/${encodeURIComponent(one.pod)}`}>{one.pod}</a>}</td>
            <td>{one.state}</td>
            <td>{one.node ? <a href={`#/map/${encodeURIComponent(one.node)}`}>{one.node}</a> : '–'}</td>
            <td>{one.domain || '–'}</td>
            <td>{one.why}</td>
          </tr>
        ))}
      </Table>
    </details>
  )
}
