// Descheduler plan for a policy of the reader, computed on a copy.
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
      setProblem(error instanceof Refused ? error.message : 'the server did not respond')
    }
    setBusy(false)
  }

  return (
    <section aria-label="Descheduler plan" class="results">
      <h1>Descheduler plan</h1>
      <Problem text={refusal} />
      <p>
        The pods that a descheduler would evict now, with reasons. The plan is computed on a copy of this cluster; where a plugin requires it, the scheduler proves each move. Nothing is written.
      </p>
      <form onSubmit={(event) => void run(event)}>
        <details>
          <summary>Policy: {answer?.origin ?? '…'}</summary>
          <label>
            DeschedulerConfiguration
            <textarea rows={12} spellcheck={false} value={policy ?? answer?.policy ?? ''} onInput={(event) => setPolicy(event.currentTarget.value)} />
          </label>
        </details>
        <button type="submit" disabled={isBusy || !answer}>
          {isBusy ? 'planning …' : 'Plan moves'}
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
