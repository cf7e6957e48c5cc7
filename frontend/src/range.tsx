// The part of the time that all charts show: chosen by its two ends, kept in the address.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { clockTime, isCalendar, moment, secondsOf } from './format'
import { Problem } from './parts'
import type { Range } from './route'

interface Props {
  range: Range | null
  atS: number[] // all moments with a sample
  isVirtual: boolean
  choose: (range: Range | null) => void
}

const EXPECTED = 'Expected a time such as "day 1, 08:30" or "08:30:00".'

export function RangeChooser(props: Props): JSX.Element {
  const { range, atS } = props
  const [problem, setProblem] = useState('')
  const all: Range = [atS[0] ?? 0, atS[atS.length - 1] ?? 0]
  const isVirtual = !isCalendar(all[1], props.isVirtual)
  const set = (end: 0 | 1, text: string): void => {
    const seconds = text.trim() ? secondsOf(text, isVirtual) : all[end]
    if (seconds === null) {
      setProblem(EXPECTED)
      return
    }
    const chosen: Range = [...(range ?? all)]
    chosen[end] = seconds
    const isInOrder = chosen[0] < chosen[1]
    setProblem(isInOrder ? '' : 'The first time must be before the second.')
    if (isInOrder) props.choose(chosen)
  }
  const end = (name: string, place: 0 | 1): JSX.Element => (
    <label>
      {name}{' '}
      <input
        key={String(range?.[place])}
        type={isVirtual ? 'text' : 'datetime-local'}
        step="1"
        size={16}
        placeholder={isVirtual ? moment(all[place], true) : ''}
        defaultValue={range ? (isVirtual ? moment(range[place], true) : clockTime(range[place])) : ''}
        onChange={(event) => set(place, event.currentTarget.value)}
      />
    </label>
  )
  return (
    <div class="tools range" role="group" aria-label="Range of time">
      {end('from', 0)}
      {end('to', 1)}
      <button type="button" disabled={!range} onClick={() => props.choose(null)}>
        all the time
      </button>
      <Problem text={problem} />
    </div>
  )
}
