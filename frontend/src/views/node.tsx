// Details of one node: amounts, NUMA nodes, CPUs, devices, and their allocation to pods.
import type { JSX } from 'preact'
import { holderColour, UNKNOWN_COLOUR } from '../colours'
import { age } from '../format'
import { model } from '../model'
import { Bar, Problem, Table, useAnswer } from '../parts'
import { go } from '../route'
import type { NodeDetails } from '../wire'

export function NodeInside(props: { name: string }): JSX.Element {
  const { answer, problem } = useAnswer<NodeDetails>('node', { name: props.name }, 2000)
  return (
    <>
      <div class="tools">
        <h2 class="name">{props.name}</h2>
        <button type="button" onClick={() => go('map')}>
          close
        </button>
      </div>
      <Problem text={problem} />
      {answer && <Inside node={answer} />}
    </>
  )
}

function Inside(props: { node: NodeDetails }): JSX.Element {
  const { node } = props
  const bad = node.conditions.filter((one) => (one.type === 'Ready') !== (one.status === 'True'))
  return (
    <>
      {node.isCordoned && <Problem text="The node is cordoned: it takes no new pods." />}
      {bad.map((one) => (
        <Problem text={`${one.type} is ${one.status}${one.message ? `: ${one.message}` : ''}`} />
      ))}
      <dl class="amounts">
        {node.resources
          .filter((one) => one.share !== null)
          .map((one) => (
            <>
              <dt>{one.name}</dt>
              <dd>
                <Bar label={one.name} value={1000 * (one.share ?? 0)} text={`${one.used} of ${one.total}`} />
                <span>
                  {one.used} of {one.total}
                </span>
              </dd>
            </>
          ))}
      </dl>
      {node.devices.map((kind) => (
        <>
          <h3>{kind.type.toUpperCase()}</h3>
          <ul class="devices">
            {kind.devices.map((one) => (
              <li>
                <span class="dim">
                  {one.minor}
                  {one.numa !== null && one.numa >= 0 && ` · NUMA ${one.numa}`}
                  {one.pcie && ` · ${one.pcie}`}
                </span>
                <span
                  class="device"
                  role="img"
                  aria-label={
                    one.isHealthy
                      ? one.holders.map((by) => `${node.pods[by.pod]?.pod} ${by.percent} percent`).join(', ') || 'free'
                      : 'unhealthy'
                  }
                >
                  {one.holders.map((by) => (
                    <i style={{ width: `${Math.min(100, by.percent)}%`, background: holderColour(by.pod) }} />
                  ))}
                </span>
                <span class="dim holders">
                  {!one.isHealthy
                    ? 'unhealthy'
                    : one.holders.length === 0
                      ? 'free'
                      : one.holders.map((by) => (
                          <span>
                            <i class="dot" style={{ background: holderColour(by.pod) }} />
                            {node.pods[by.pod]?.pod ?? ''} {by.percent} %
                          </span>
                        ))}
                </span>
              </li>
            ))}
          </ul>
        </>
      ))}
      {node.partitions.length > 0 && (
        <p class="dim">Linked GPUs: {node.partitions.map((one) => one.join('+')).join(', ')}</p>
      )}
      {node.numa.length > 0 && <h3>NUMA nodes and CPUs</h3>}
      {node.numa.map((zone) => (
        <div class="zone">
          <p class="dim">
            NUMA node {zone.zone}: {zone.resources.map((one) => `${one.name} ${one.used} of ${one.total}`).join(', ')}
          </p>
          <div class="cores" role="img" aria-label={coresInWords(zone.cores, node)}>
            {zone.cores.map((core) => (
              <span class="core">
                {core.map(([cpu, holder]) => (
                  <i
                    title={`CPU ${cpu}: ${holder >= 0 ? node.pods[holder]?.pod : holder === -2 ? 'not for pods' : 'not bound'}`}
                    class={holder === -2 ? 'barred' : ''}
                    style={{ background: holder >= 0 ? holderColour(holder) : UNKNOWN_COLOUR }}
                  />
                ))}
              </span>
            ))}
          </div>
        </div>
      ))}
      <h3>
        {node.pods.length} {node.pods.length === 1 ? 'pod' : 'pods'}
      </h3>
      <Table label="Pods of the node" heads={['Pod', 'Requests', 'Allocated', 'Age']}>
        {node.pods.map((one, place) => (
          <tr>
            <td>
              {(one.cpus || Object.keys(one.devices).length > 0) && <i class="dot" style={{ background: holderColour(place) }} />}
              <a href={`#/waiting/${encodeURIComponent(one.pod)}`}>{one.pod}</a>
            </td>
            <td>{Object.entries(one.requests).map(([name, amount]) => `${name} ${amount}`).join(', ')}</td>
            <td>
              {[one.cpus && `CPUs ${one.cpus}`, ...Object.entries(one.devices).map(([kind, minors]) => `${kind} ${minors.join(',')}`)]
                .filter(Boolean)
                .join('; ')}
            </td>
            <td>{age(model.status.nowS - one.sinceS)}</td>
          </tr>
        ))}
      </Table>
    </>
  )
}

function coresInWords(cores: [number, number][][], node: NodeDetails): string {
  const held = new Map<number, number>()
  for (const core of cores) for (const [, holder] of core) held.set(holder, (held.get(holder) ?? 0) + 1)
  return [...held].map(([holder, many]) => `${many} CPUs ${holder >= 0 ? `of ${node.pods[holder]?.pod}` : holder === -2 ? 'not for pods' : 'not bound'}`).join(', ')
}
