// Entry point of two pages: the live page of a server, and a result file with its data.
import { render } from 'preact'
import { App, followServer } from './app'
import './style.css'
import { Results } from './views/results'
import type { ResultPage } from './wire'

const place = document.getElementById('app')
const results = document.getElementById('results')
if (place && results) render(<Results page={JSON.parse(results.textContent ?? '') as ResultPage} />, place)
else if (place) {
  followServer()
  render(<App />, place)
}
