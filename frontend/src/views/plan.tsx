// What would move: the plan of a descheduler, made on a copy by the policy that is written here.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { post, Refused } from '../client'
import { Problem, useAnswer } from '../parts'
import type { Policy, ResultPage } from '../wire'
import { Section } from './results'

export function MovePlan(): JSX.Element | null {
  const { answer, problem: refusal } = useAnswer<Policy>('policy', {}, 3_600_000)
  const [policy, setPolicy] = useState<string | null>(null)
  const [plan, setPlan] = useState<ResultPage | null>(null)
  const [problem, setProblem] = useState('')
  const [isBusy, setBusy] = useState(false)

  const run = async (event: Event): Promise<void> => {
    event.preventDefault()
    setBusy(true)
    setProblem('')
    try {
      setPlan(await post<ResultPage>('plan', { policy: policy ?? answer?.policy ?? '' }))
    } catch (error) {
      setPlan(null)
      setProblem(error instanceof Refused ? error.message : 'no answer')
    }
    setBusy(false)
  }

  return (
    <section aria-label="What would move" class="results">
      <h1>What would move</h1>
      <Problem text={refusal} />
      <p>
        What a descheduler would move now, and why. It looks at a copy of this cluster; each move is proven by the scheduler, where its plugin has that done. Nothing is written.
      </p>
      <form onSubmit={(event) => void run(event)}>
        <details>
          <summary>The policy: {answer?.origin ?? '…'}</summary>
          <label>
            A DeschedulerConfiguration
            <textarea rows={12} spellcheck={false} value={policy ?? answer?.policy ?? ''} onInput={(event) => setPolicy(event.currentTarget.value)} />
          </label>
        </details>
        <button type="submit" disabled={isBusy || !answer}>
          {isBusy ? 'deciding …' : 'What would move?'}
        </button>
      </form>
      <Problem text={problem} />
      {plan && (
        <div role="status">
          <ul class="facts">
            {plan.facts.map((text) => (
              <li>{text}</li>
            ))}
          </ul>
          {plan.sections.map((one) => (
            <Section section={one} marks={[]} atS={[]} other={null} />
          ))}
        </div>
      )}
    </section>
  )
}
