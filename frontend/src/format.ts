// Formatting of numbers and times; koordinator/simulator/numerals.py uses the same forms.

export type Unit = 'share' | 'count' | 'seconds' | 'rate'

const UNKNOWN = '–'

export function count(value: number): string {
  return value.toLocaleString('en')
}

export function percent(thousandths: number): string {
  return thousandths < 0 ? 'unknown' : `${(thousandths / 10).toFixed(thousandths % 10 ? 1 : 0)} %`
}

export function share([used, all]: [number, number]): number {
  return all > 0 ? Math.round((1000 * used) / all) : -1
}

function pair(value: number, small: string, large: string, factor: number): string {
  const rest = value % factor
  return `${Math.floor(value / factor)} ${large}${rest ? ` ${rest} ${small}` : ''}`
}

/** Return at most two units: 4.2 s, 12 s, 2 min 5 s, 1 h 23 min, 3 d. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds)
  if (s < 9.95) return `${Math.floor(s * 10 + 0.5) / 10} s`
  const whole = Math.floor(s + 0.5)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return pair(whole, 's', 'min', 60)
  const minutes = Math.floor(s / 60 + 0.5)
  if (minutes < 1440) return pair(minutes, 'min', 'h', 60)
  return pair(Math.floor(s / 3600 + 0.5), 'h', 'd', 24)
}

/** Return the age of something: as ``duration``, but rounded to minutes above one minute. */
export function age(seconds: number): string {
  return duration(seconds < 60 ? Math.round(Math.max(0, seconds)) : Math.floor(seconds / 60) * 60)
}

/** Return a value with its unit, for a text or for an axis. */
export function inUnit(value: number | null, unit: Unit, isAxis = false): string {
  if (value === null || Number.isNaN(value)) return UNKNOWN
  if (unit === 'share') return isAxis ? `${Math.round(value * 1000) / 10}%` : `${(Math.floor(value * 1000 + 0.5) / 10).toFixed(1)}%`
  if (unit === 'seconds') return duration(value)
  const number = isAxis ? compact(value) : count(Math.floor(value + 0.5))
  return unit === 'rate' ? `${number}/s` : number
}

function compact(value: number): string {
  if (value >= 1e6) return `${value / 1e6}M`
  return value >= 1e4 ? `${value / 1e3}k` : count(value)
}

const HOUR = 3600
const DAY = 86400
/** Steps of an axis of durations, in seconds. */
export const DURATION_STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 5 * DAY, 10 * DAY, 20 * DAY, 30 * DAY, 60 * DAY, 90 * DAY, 180 * DAY, 365 * DAY,
]

function clock(atS: number, parts: number): string {
  const rest = atS % DAY
  const all = [rest / HOUR, (rest % HOUR) / 60, rest % 60].map((part) => String(Math.floor(part)).padStart(2, '0'))
  return all.slice(0, parts).join(':')
}

/** Return the label of a tick in virtual time; the start of a day has the day's number. */
export function axisText(atS: number, next: number, before: number): string {
  const step = Math.abs(next - atS) || Math.abs(atS - before)
  const day = Math.floor(atS / DAY)
  if (step >= DAY || (day > 0 && atS % DAY === 0)) return `day ${day + 1}`
  return clock(atS, step < 60 && step > 0 ? 3 : 2)
}

/** Return whether a moment is one of the calendar; recorded simulations begin with 1970. */
export function isCalendar(atS: number, isVirtual: boolean): boolean {
  return !isVirtual && atS > 365 * DAY
}

/** Return a moment of a cluster; virtual times, also in recordings of simulations, start at the epoch. */
export function moment(atS: number, isVirtual: boolean): string {
  if (isCalendar(atS, isVirtual)) return new Date(atS * 1000).toLocaleString()
  const day = Math.floor(atS / DAY)
  return day ? `day ${day + 1}, ${clock(atS, 3)}` : clock(atS, 3)
}

/** Return a moment of a cluster as a field for local times takes it: 2026-01-31T08:30:00. */
export function clockTime(atS: number): string {
  const at = new Date(atS * 1000)
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

/** Return the seconds of a time as ``moment`` or ``clockTime`` spell it; null for any other text. */
export function secondsOf(text: string, isVirtual: boolean): number | null {
  if (!isVirtual) {
    const at = Date.parse(text)
    return Number.isNaN(at) ? null : at / 1000
  }
  const found = /^(?:day\s+(\d+),?\s*)?(\d{1,2}):(\d{2})(?::(\d{2}))?$/i.exec(text.trim())
  if (!found) return null
  const [day, hours, minutes, seconds] = found.slice(1).map((part) => Number(part ?? 0))
  return Math.max(0, (day ?? 0) - 1) * DAY + (hours ?? 0) * HOUR + (minutes ?? 0) * 60 + (seconds ?? 0)
}

const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

export function bytes(value: number): string {
  let power = 0
  let left = value
  while (left >= 1024 && power < BINARY.length - 1) {
    left /= 1024
    power += 1
  }
  return `${left < 10 ? left.toFixed(1) : Math.round(left)} ${BINARY[power]}`
}

const SUFFIX: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
}

/** Return a Kubernetes quantity as a number. */
export function quantity(text: string | undefined): number {
  const found = /^([+-]?[0-9.]+)(?:e([+-]?\d+))?([numkMGTPE]?i?)$/i.exec(text ?? '')
  if (!found) return 0
  const scale = SUFFIX[found[3] ?? ''] ?? 1
  return Number(found[1]) * 10 ** Number(found[2] ?? 0) * scale
}
