// Colours: shares on a scale for colour-blind readers (cividis); states also differ in lightness.

const SCALE = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fee838']
const STATE = ['#3b7dd8', '#8a8678', '#fe9929', '#d7301f']
export const UNKNOWN_COLOUR = '#8884'

/** Colours of cells by tone: unknown, shares in ascending order, states from good to bad. */
export const COLOURS = [UNKNOWN_COLOUR, ...SCALE, ...STATE]

/** Return the tone of a value: its index in ``COLOURS``. */
export function toneOf(column: string, value: number): number {
  if (value < 0) return 0
  if (column === 'state') return value < STATE.length ? 1 + SCALE.length + value : 0
  return 1 + Math.min(SCALE.length - 1, Math.floor((value / 1000) * SCALE.length))
}

/** Return whether dark text is more readable than light text on a tone. */
export function isPale(tone: number): boolean {
  return tone > SCALE.length / 2 && tone <= SCALE.length
}

/** Colours of chart lines; the first are the easiest to distinguish. */
export const LINES = ['#3b7dd8', '#e1812c', '#2f9e77', '#b5446e', '#8c6bb1', '#8a8678', '#c3b300', '#17a2b8', '#d7301f']

export function colourOf(column: string, value: number): string {
  return COLOURS[toneOf(column, value)] ?? UNKNOWN_COLOUR
}

/** Return the colour of a holder by its index. */
export function holderColour(place: number): string {
  return LINES[place % LINES.length] ?? UNKNOWN_COLOUR
}
