// Problems that need an administrator; equal texts of one topic share a card.
import type { JSX } from 'preact'
import { age } from '../format'
import { model } from '../model'
import { Empty, Problem, useAnswer } from '../parts'
import type { Attention } from '../wire'

type Item = Attention['items'][number]

export function NeedsAttention(): JSX.Element {
  const { answer, problem } = useAnswer<Attention>('attention', {}, 3000)
  const groups = new Map<string, Item[]>()
  for (const one of answer?.items ?? []) {
    const key = `${one.severity} ${one.topic}: ${one.text}`
    groups.set(key, [...(groups.get(key) ?? []), one])
  }
  return (
    <section aria-label="Problems">
      <h1>Problems</h1>
      <Problem text={problem} />
      {answer && answer.items.length === 0 && <Empty>No problems found.</Empty>}
      {[...groups.values()].map((alike) => {
        const [first] = alike
        if (!first) return null
        const oldest = Math.min(...alike.map((one) => one.sinceS ?? Infinity))
        return (
          <article class={`card ${first.severity}`}>
            <h2>
              <span class="topic">{first.topic}</span> {first.text}
              {alike.length > 1 && <span class="number"> {alike.length}×</span>}
            </h2>
            <p>
              {alike.slice(0, 20).map((one, place) => (
                <>
                  {place > 0 && ', '}
                  <About about={one.about} />
                </>
              ))}
              {alike.length > 20 && ' …'}
              {Number.isFinite(oldest) && <span class="dim"> for {age(model.status.nowS - oldest)}</span>}
            </p>
          </article>
        )
      })}
      {answer && Object.keys(answer.notLookedAt).length > 0 && (
        <p class="dim">
          Not checked: {Object.entries(answer.notLookedAt).map(([what, why]) => `${what} (${why})`).join('; ')}
        </p>
      )}
    </section>
  )
}

function About(props: { about: string }): JSX.Element {
  const place = props.about.indexOf('/')
  const [kind, name] = [props.about.slice(0, place), props.about.slice(place + 1)]
  return kind === 'node' ? <a href={`#/map/${encodeURIComponent(name)}`}>{name}</a> : <span>{name || kind}</span>
}
