// List of events; events whose texts differ only in names and numbers share a line.
import type { JSX } from 'preact'
import { count, moment } from './format'
import type { Mark } from './chart'

const MAX_GROUPS = 100
const MAX_PER_GROUP = 200

interface Group {
  words: string
  marks: Mark[]
}

function groupsOf(marks: Mark[]): Group[] {
  const groups = new Map<string, Mark[]>()
  for (const one of marks) {
    const words = one.text.replace(/\S*[\d/]\S*/g, '…').replace(/(… )+…/g, '…')
    const known = groups.get(words)
    if (known) known.push(one)
    else groups.set(words, [one])
  }
  const found = [...groups].map(([words, alike]) => ({ words, marks: alike }))
  return found.sort((a, b) => Number(isFailure(b)) - Number(isFailure(a)) || latest(b) - latest(a))
}

function isFailure(group: Group): boolean {
  return group.marks.some((one) => one.isFailure)
}

function latest(group: Group): number {
  return group.marks[group.marks.length - 1]?.atS ?? 0
}

export function Happened(props: { marks: Mark[]; isVirtual: boolean }): JSX.Element {
  const groups = groupsOf(props.marks)
  const at = (one: Mark | undefined): string => (one ? moment(one.atS, props.isVirtual) : '')
  return (
    <ul class="happened">
      {groups.slice(0, MAX_GROUPS).map((group) => {
        const [first] = group.marks
        const last = group.marks[group.marks.length - 1]
        const tone = isFailure(group) ? 'failure' : ''
        return group.marks.length === 1 ? (
          <li class={tone}>
            <span class="at">{at(first)}</span> {first?.text}
          </li>
        ) : (
          <li class={tone}>
            <details>
              <summary>
                <span class="at">
                  {at(first)} – {at(last)}
                </span>{' '}
                <strong>{count(group.marks.length)}×</strong> {group.words}
              </summary>
              <ul>
                {group.marks.slice(-MAX_PER_GROUP).map((one) => (
                  <li>
                    <span class="at">{at(one)}</span> {one.text}
                  </li>
                ))}
                {group.marks.length > MAX_PER_GROUP && <li>and {count(group.marks.length - MAX_PER_GROUP)} earlier ones</li>}
              </ul>
            </details>
          </li>
        )
      })}
      {groups.length > MAX_GROUPS && <li>and {count(groups.length - MAX_GROUPS)} others</li>}
    </ul>
  )
}
