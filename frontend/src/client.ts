// Queries and the event stream.  The bearer token goes into a header, so the stream is read with
// fetch: EventSource cannot send headers.
import type { Frame } from './wire'

const TOKEN = 'koord-token'

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token)
}

function headers(): Record<string, string> {
  const token = sessionStorage.getItem(TOKEN)
  return token ? { authorization: `Bearer ${token}` } : {}
}

async function refused(response: Response): Promise<Refused> {
  const text = await response.text()
  try {
    return new Refused(response.status, (JSON.parse(text) as { message: string }).message)
  } catch {
    return new Refused(response.status, text || response.statusText)
  }
}

export async function get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const search = new URLSearchParams(query).toString()
  const response = await fetch(`api/${path}${search ? `?${search}` : ''}`, { headers: headers() })
  if (!response.ok) throw await refused(response)
  return (await response.json()) as T
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const response = await fetch(`api/${path}`, {
    method: 'POST',
    headers: { ...headers(), 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!response.ok) throw await refused(response)
  return (await response.json()) as T
}

export interface Listener {
  open: () => void // the next frame is a full one
  frame: (frame: Frame) => void
  away: (why: Refused | null) => void // null: the server is unreachable
}

/** Follow the stream and reconnect whenever it ends; the server ends it to review rights again. */
export function follow(listener: Listener): { restart: () => void } {
  let abort = new AbortController()
  const run = async (): Promise<void> => {
    let pauseMs = 250
    for (;;) {
      abort = new AbortController()
      try {
        const response = await fetch('api/events', { headers: headers(), signal: abort.signal })
        if (!response.ok || !response.body) throw await refused(response)
        pauseMs = 250
        listener.open()
        await read(response.body, listener.frame)
      } catch (error) {
        listener.away(error instanceof Refused ? error : null)
        pauseMs = Math.min(pauseMs * 2, 5000)
      }
      await new Promise((done) => setTimeout(done, pauseMs))
    }
  }
  void run()
  return { restart: () => abort.abort() }
}

async function read(body: ReadableStream<Uint8Array>, take: (frame: Frame) => void): Promise<void> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += decoder.decode(value, { stream: true })
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const part = rest.slice(0, end)
      rest = rest.slice(end + 2)
      if (part.startsWith('data: ')) take(JSON.parse(part.slice(6)) as Frame)
    }
  }
}
