// Route of the open view; it is part of the address, so that a view can be bookmarked and shared.

export const VIEWS = ['waiting', 'map', 'shares', 'attention', 'time', 'try', 'report'] as const
export type View = (typeof VIEWS)[number]

export interface Route {
  view: View
  name: string // of the open pod or node
}

export function route(): Route {
  const [view, name] = location.hash.replace(/^#\/?/, '').split('/')
  const known = VIEWS.find((one) => one === view)
  try {
    return { view: known ?? 'waiting', name: decodeURIComponent(name ?? '') }
  } catch {
    return { view: known ?? 'waiting', name: '' }
  }
}

export function go(view: View, name = ''): void {
  location.hash = name ? `#/${view}/${encodeURIComponent(name)}` : `#/${view}`
}
