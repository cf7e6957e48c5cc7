// What a view answers, the keys, and the pages of the documentation about it.
import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { View } from './route'

interface About {
  text: string
  pages: [string, string][] // name of a file in docs/how-to, and its title
}

const DASHBOARD: [string, string] = ['dashboard', 'See a cluster in the browser']
export const ABOUT: Record<View, About> = {
  start: { text: 'The state of the cluster on one page: open problems, pending pods, and pools of nodes.', pages: [] },
  waiting: {
    text: 'Pending pods by cause, and for one pod the nearest nodes, its place in the queue, and remedies that were tried on a copy of the cluster.',
    pages: [['explain-pods', 'Read an explanation'], ['audit', 'Read the decisions of a scheduler in its audit trail']],
  },
  map: {
    text: 'Every node as a cell, coloured by allocation or load. A node opens into NUMA nodes, CPUs, devices and pods.',
    pages: [['share-a-gpu', 'Share a GPU'], ['place-by-load', 'Place pods by measured load']],
  },
  shares: {
    text: 'The quota tree with guarantees, limits and loans; the queue in the order in which pods are tried; gangs and their members.',
    pages: [['queue-jobs', 'Let jobs wait in a queue'], ['hold-jobs-back', 'Hold jobs back until their quota has room'], ['start-workloads-together', 'Start the pods of a Workload together'], ['gather-a-job', 'Gather a job in the network']],
  },
  attention: {
    text: 'Problems that no controller solves: broken devices, nodes that are not ready, stale reports, stuck gangs, unused reservations.',
    pages: [['install', 'Install on a cluster'], ['run-the-node-agent', 'Run the node agent']],
  },
  time: {
    text: 'Allocation and pending pods over time, the pods on each GPU, events and decisions. Drag in a chart to zoom, double click to see all; choose a range by its ends; save a chart as CSV or SVG.',
    pages: [['audit', 'Read the decisions of a scheduler in its audit trail'], ['replay', 'Record a cluster, and try another configuration on it']],
  },
  try: {
    text: 'The effect of other pods, nodes, quotas or another configuration on a copy of the cluster, and the plan of a descheduler. Nothing is written.',
    pages: [['schedule-manifests', 'Schedule manifests'], ['move-pods', 'Move pods'], ['deschedule', 'Deschedule pods']],
  },
  report: { text: 'The report of a simulation that has ended.', pages: [['describe-a-workload', 'Describe a workload']] },
}

const KEYS: [string, string][] = [
  ['0 … 7', 'open a view'],
  ['/', 'find a pod, cause or namespace'],
  ['?', 'open this help'],
  ['Escape', 'close a pod, a node or this help; show the whole chart'],
  ['arrow keys', 'read out the chart or map that has the focus'],
]

export function Pages(props: { view: View }): JSX.Element {
  return (
    <ul>
      {[...ABOUT[props.view].pages, DASHBOARD].map(([file, title]) => (
        <li key={file}>
          <a href={`docs/${file}.md`} target="_blank" rel="noreferrer">
            {title}
          </a>
        </li>
      ))}
    </ul>
  )
}

export function Help(props: { view: View; title: string; isOpen: boolean; close: () => void }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    if (props.isOpen && !box.current?.open) box.current?.showModal()
    if (!props.isOpen && box.current?.open) box.current.close()
  }, [props.isOpen])
  return (
    <dialog ref={box} class="help-box" aria-label="Help" onClose={props.close}>
      <div class="tools">
        <h2>{props.title}</h2>
        <button type="button" onClick={props.close}>
          close
        </button>
      </div>
      <p>{ABOUT[props.view].text}</p>
      <h3>Documentation</h3>
      <Pages view={props.view} />
      <h3>Keys</h3>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
    </dialog>
  )
}
