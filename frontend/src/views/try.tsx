// Try it: the same cluster with something changed, scheduled on a copy.  Nothing is written.
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
      setProblem(error instanceof Refused ? error.message : 'no answer')
    }
    setBusy(false)
  }

  return (
    <>
    <section aria-label="Try it">
      <h1>Try it</h1>
      <p>What would be different? Two schedulers decide about copies of this cluster, one of them with your changes. Nothing is written.</p>
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
          Add or replace: manifests (a pod, node, quota …)
          <textarea rows={8} spellcheck={false} value={manifests} onInput={(event) => setManifests(event.currentTarget.value)} />
        </label>
        <label>
          Take away, one per line: kind/name or kind/namespace/name, such as node/gpu-3
          <textarea rows={3} spellcheck={false} value={remove} onInput={(event) => setRemove(event.currentTarget.value)} />
        </label>
        <label>
          Another configuration: a KubeSchedulerConfiguration
          <textarea rows={3} spellcheck={false} value={configuration} onInput={(event) => setConfiguration(event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={isBusy}>
          {isBusy ? 'deciding …' : 'What would change?'}
        </button>
      </form>
      <Problem text={problem} />
      {answer && (
        <div role="status">
          <p>
            Placed now: {answer.placedBefore} → <strong>{answer.placedAfter}</strong>. Waiting: {answer.waitingBefore} → <strong>{answer.waitingAfter}</strong>.
            {answer.evictedAfter > 0 && ` ${answer.evictedAfter} would have to go.`} {answer.differ} {answer.differ === 1 ? 'pod fares' : 'pods fare'} otherwise.
          </p>
          {answer.differences.length === 0 ? (
            <Empty>Nothing would change.</Empty>
          ) : (
            <Table label="Differences" heads={['Pod', 'Now', 'Then', 'Why']}>
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
