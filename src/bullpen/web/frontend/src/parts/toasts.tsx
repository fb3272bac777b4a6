// What came of something, said at once and for a few seconds.
import type { Look } from '../model/states.ts'
import { cell } from '../live/cell.ts'
import { StateIcon } from './icons.tsx'
import { Literal } from './text.tsx'

interface Toast { id: number; text: string; look: Look }
const toasts = cell<Toast[]>([])
let next = 1

export function say(text: string, look: Look = 'done'): void {
  const id = next++
  toasts.set([...toasts.get().slice(-3), { id, text, look }])
  setTimeout(() => toasts.set(toasts.get().filter(one => one.id !== id)), look === 'bad' ? 12_000 : 6_000)
}

/** What was refused, as it was said. */
export function sayRefused(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error)
  const hint = error && typeof error === 'object' && 'hint' in error ? String(error.hint) : ''
  say(hint ? `${message} · ${hint}` : message, 'bad')
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.use().map(one => (
        <div key={one.id} class="toast">
          <span class={one.look}><StateIcon look={one.look} /></span>
          <span><Literal text={one.text} /></span>
        </div>
      ))}
    </div>
  )
}
