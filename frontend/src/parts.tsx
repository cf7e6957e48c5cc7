// Components that several views share.
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { get, Refused } from './client'

/** Repeat a query at an interval while the view is open. */
export function useAnswer<T>(
  path: string,
  query: Record<string, string> | null,
  everyMs: number,
): { answer: T | null; problem: string } {
  const [found, setFound] = useState<{ key: string; answer: T | null; problem: string }>({
    key: '',
    answer: null,
    problem: '',
  })
  const key = query === null ? '' : `${path} ${JSON.stringify(query)}`
  useEffect(() => {
    if (query === null) return undefined
    let isOpen = true
    let timer = 0
    const ask = async (): Promise<void> => {
      try {
        const answer = await get<T>(path, query)
        if (isOpen) setFound({ key, answer, problem: '' })
      } catch (error) {
        const problem = error instanceof Refused ? error.message : 'the server did not respond'
        if (isOpen) setFound((old) => ({ key, answer: old.key === key ? old.answer : null, problem }))
      }
      if (isOpen) timer = window.setTimeout(() => void ask(), everyMs)
    }
    void ask()
    return () => {
      isOpen = false
      window.clearTimeout(timer)
    }
  }, [key, everyMs])
  return found.key === key ? found : { answer: null, problem: '' }
}

export function Bar(props: { label: string; value: number; of?: number; mark?: number; text: string; tone?: string }): JSX.Element {
  const whole = props.of ?? 1000
  const width = whole > 0 ? Math.min(100, Math.max(0, (100 * props.value) / whole)) : 0
  return (
    <span class="bar" role="img" aria-label={`${props.label}: ${props.text}`}>
      <span class={`fill ${props.tone ?? ''}`} style={{ width: `${width}%` }} />
      {props.mark !== undefined && whole > 0 && (
        <span class="mark" style={{ left: `${Math.min(100, (100 * props.mark) / whole)}%` }} />
      )}
    </span>
  )
}

export function Problem(props: { text: string }): JSX.Element | null {
  return props.text ? (
    <p class="problem" role="alert">
      {props.text}
    </p>
  ) : null
}

export function Empty(props: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{props.children}</p>
}

/** Table whose rows fold on a narrow page: see data-label in style.css. */
export function Table(props: { label: string; heads: string[]; tone?: string; children: ComponentChildren }): JSX.Element {
  const table = useRef<HTMLTableElement>(null)
  useLayoutEffect(() => {
    for (const row of table.current?.tBodies[0]?.rows ?? [])
      [...row.cells].forEach((cell, place) => {
        if (cell.tagName === 'TD') cell.dataset['label'] = props.heads[place] ?? ''
      })
  })
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
      <table ref={table} class={props.tone ?? ''}>
        <thead>
          <tr>
            {props.heads.map((head) => (
              <th scope="col">{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>{props.children}</tbody>
      </table>
    </div>
  )
}

const THEME = 'koord-theme'

/** Return the stored theme; a page opened as a file may have no local storage. */
function keptTheme(): string {
  try {
    return localStorage.getItem(THEME) ?? 'system'
  } catch {
    return 'system'
  }
}

export function ThemeSwitch(): JSX.Element {
  const [theme, setTheme] = useState(keptTheme())
  useLayoutEffect(() => {
    try {
      localStorage.setItem(THEME, theme)
    } catch {
      // without local storage the theme lasts until the page is closed
    }
    if (theme === 'system') delete document.documentElement.dataset['theme']
    else document.documentElement.dataset['theme'] = theme
    window.dispatchEvent(new Event(THEME))
  }, [theme])
  return (
    <label class="theme">
      <span class="dim">colours</span>{' '}
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
        <option value="system">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  )
}
