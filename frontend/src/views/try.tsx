// What if: the cluster with some changes, scheduled on a copy.  Nothing is written.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { post, Refused } from '../client'
import { Empty, Problem, Table, useAnswer } from '../parts'
import type { Quotas, WhatIf } from '../wire'
import { MovePlan } from './plan'
import { flat } from './shares'

function resourceOf(wanted: string, known: string[]): string {
  return known.includes(wanted) ? wanted : (known[0] ?? wanted)
}

export function TryIt(): JSX.Element {
  const [manifests, setManifests] = useState('')
  const [remove, setRemove] = useState('')
  const [configuration, setConfiguration] = useState('')
  const [answer, setAnswer] = useState<WhatIf | null>(null)
  const [problem, setProblem] = useState('')
  const [isBusy, setBusy] = useState(false)

  const [grant, setGrant] = useState({ quota: '', resource: 'nvidia.com/gpu', amount: '8' })
  const quotas = useAnswer<Quotas>('quotas', {}, 30_000)
  const known = (quotas.answer?.trees ?? []).flatMap((tree) => tree.quotas.flatMap(flat))
  const resources = [...new Set(known.flatMap((one) => [...Object.keys(one.max), ...Object.keys(one.min)]))].sort()

  const run = async (event: Event): Promise<void> => {
    event.preventDefault()
    setBusy(true)
    setProblem('')
    try {
      const grants = grant.quota ? [{ ...grant, resource: resourceOf(grant.resource, resources) }] : []
      setAnswer(await post<WhatIf>('try', { manifests, configuration, remove: remove.split('\n'), grants }))
    } catch (error) {
      setAnswer(null)
      setProblem(error instanceof Refused ? error.message : 'the server did not respond')
    }
    setBusy(false)
  }

  return (
    <>
    <section aria-label="What if">
      <h1>What if</h1>
      <p>Two schedulers place the pods of two copies of this cluster, one of them with your changes. Nothing is written.</p>
      <form onSubmit={(event) => void run(event)}>
        {known.length > 0 && (
          <fieldset class="tools">
            <legend>A larger quota</legend>
            <label>
              quota{' '}
              <select value={grant.quota} onChange={(event) => setGrant({ ...grant, quota: event.currentTarget.value })}>
                <option value="">none</option>
                {known.map((one) => (
                  <option>{one.name}</option>
                ))}
              </select>
            </label>
            <label>
              gets <input size={6} aria-label="amount" value={grant.amount} onInput={(event) => setGrant({ ...grant, amount: event.currentTarget.value })} /> more
            </label>
            <label>
              of{' '}
              <select aria-label="of which resource" value={resourceOf(grant.resource, resources)} onChange={(event) => setGrant({ ...grant, resource: event.currentTarget.value })}>
                {resources.map((name) => (
                  <option>{name}</option>
                ))}
              </select>
            </label>
          </fieldset>
        )}
        <label>
          Manifests to add or replace (pods, nodes, quotas …)
          <textarea rows={8} spellcheck={false} value={manifests} onInput={(event) => setManifests(event.currentTarget.value)} />
        </label>
        <label>
          Objects to remove, one per line: kind/name or kind/namespace/name, such as node/gpu-3
          <textarea rows={3} spellcheck={false} value={remove} onInput={(event) => setRemove(event.currentTarget.value)} />
        </label>
        <label>
          KubeSchedulerConfiguration to use instead
          <textarea rows={3} spellcheck={false} value={configuration} onInput={(event) => setConfiguration(event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={isBusy}>
          {isBusy ? 'scheduling …' : 'Compare'}
        </button>
      </form>
      <Problem text={problem} />
      {answer && (
        <div role="status">
          <p>
            Placed now: {answer.placedBefore} → <strong>{answer.placedAfter}</strong>. Waiting: {answer.waitingBefore} → <strong>{answer.waitingAfter}</strong>.
            {answer.evictedAfter > 0 && ` ${answer.evictedAfter} would be evicted.`} {answer.differ} {answer.differ === 1 ? 'pod differs' : 'pods differ'}.
          </p>
          {answer.differences.length === 0 ? (
            <Empty>Nothing would change.</Empty>
          ) : (
            <Table label="Differences" heads={['Pod', 'Node now', 'Node then', 'Reason']}>
              {answer.differences.map((one) => (
                <tr>
                  <td>{one.pod}</td>
                  <td>{one.before || '–'}</td>
                  <td>{one.after || '–'}</td>
                  <td>{one.why}</td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      )}
    </section>
    <MovePlan />
    </>
  )
}
