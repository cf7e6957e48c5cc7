// Route of the open view: #/VIEW/NAME/FROM..TO in the address, so that a view can be bookmarked and shared.

export const VIEWS = ['start', 'waiting', 'map', 'shares', 'attention', 'time', 'try', 'report'] as const
export type View = (typeof VIEWS)[number]
export type Range = [number, number] // seconds: from, to

export interface Route {
  view: View
  name: string // of the open pod or node
  range: Range | null // of the view Time; null: all
}

export function route(): Route {
  const [view, name, range] = location.hash.replace(/^#\/?/, '').split('/')
  const known = VIEWS.find((one) => one === view) ?? 'start'
  const limits = (range ?? '').split('..').map(Number)
  const [from = NaN, to = NaN] = limits
  const isRange = limits.length === 2 && Number.isFinite(from) && from < to
  return { view: known, name: decoded(name ?? ''), range: isRange ? [from, to] : null }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return ''
  }
}

export function go(view: View, name = '', range: Range | null = null): void {
  const place = name || range ? `#/${view}/${encodeURIComponent(name)}` : `#/${view}`
  location.hash = range ? `${place}/${range.join('..')}` : place
}
