// Numbers as people read them.

export function count(value: number): string {
  return value.toLocaleString('en')
}

export function percent(thousandths: number): string {
  return thousandths < 0 ? 'unknown' : `${(thousandths / 10).toFixed(thousandths % 10 ? 1 : 0)} %`
}

export function share([used, all]: [number, number]): number {
  return all > 0 ? Math.round((1000 * used) / all) : -1
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`
}

export function moment(atS: number, isVirtual: boolean): string {
  if (!isVirtual) return new Date(atS * 1000).toLocaleString()
  const day = Math.floor(atS / 86400)
  const rest = Math.floor(atS % 86400)
  const clock = [rest / 3600, (rest % 3600) / 60, rest % 60]
    .map((part) => String(Math.floor(part)).padStart(2, '0'))
    .join(':')
  return day ? `day ${day + 1}, ${clock}` : clock
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
