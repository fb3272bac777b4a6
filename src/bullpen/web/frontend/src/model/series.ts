// Usage over time as columns to draw. Pure.
import type { UsageSeries } from './nouns.ts'

export type What = 'usd' | 'tokens'
export interface Part { name: string; place: number; amount: number; from: number; to: number }
export interface Column { start: string; sum: number; parts: Part[] }

// The colour of all others together; those before it are `--series-0` and so on.
export const REST = 7

/** One column for each step of time, its parts one on the other. */
export function columns(series: UsageSeries, what: What): Column[] {
  const lines = series.lines.map((line, place) => ({ line, place }))
  if (series.rest) lines.push({ line: series.rest, place: REST })
  return series.starts.map((start, at) => {
    let sum = 0
    const parts: Part[] = []
    for (const { line, place } of lines) {
      const amount = line[what][at] ?? 0
      if (amount > 0) parts.push({ name: line.name, place, amount, from: sum, to: sum + amount })
      sum += Math.max(0, amount)
    }
    return { start, sum, parts }
  })
}

/** Round figures from 0 up to at least `most`, three to six of them. */
export function ticks(most: number): number[] {
  const rough = (most > 0 ? most : 1) / 4
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = power * ([1, 2, 5, 10].find(each => each * power >= rough) ?? 10)
  const found = [0]
  while (found[found.length - 1]! < most || found.length < 2) found.push(found.length * step)
  return found
}

/** Which columns have a label under them, and what it says. `room` is how many fit. */
export function labels(series: UsageSeries, room: number): { at: number; text: string }[] {
  const every = series.step === '15m' ? 3 : 24
  const marked = series.starts.flatMap((start, at) => {
    const [day = '', time = ''] = start.split('T')
    if (series.step === '1d') return [{ at, text: dayName(day) }]
    const [hour = 0, minute = 0] = time.split(/[:+-]/).map(Number)
    return minute === 0 && hour % every === 0 ? [{ at, text: series.step === '15m' ? time.slice(0, 5) : dayName(day) }] : []
  })
  const stride = Math.max(1, Math.ceil(marked.length / Math.max(1, room)))
  // From the newest on: today is always named.
  return marked.filter((_, at) => (marked.length - 1 - at) % stride === 0)
}

/** When a step begins, in full: `Tue, Nov 17` or `Tue, Nov 17, 14:15`. */
export function stepName(start: string): string {
  const [day = '', time = ''] = start.split('T')
  const name = new Date(`${day}T00:00`).toLocaleDateString('en', { weekday: 'short', month: 'short', day: 'numeric' })
  return time ? `${name}, ${time.slice(0, 5)}` : name
}

function dayName(day: string): string {
  return new Date(`${day}T00:00`).toLocaleDateString('en', { month: 'short', day: 'numeric' })
}
