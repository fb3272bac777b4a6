// The keyboard. Things that can be chosen have `data-item`, what can be done to them `data-key`.
import { cell } from './cell.ts'
import { go } from './route.ts'

/** The thing that `j` and `k` have chosen. */
export const chosen = cell('')
/** What lies over the page. */
export const over = cell<'' | 'keys' | 'palette' | 'you'>('')

export const KEYS: [string, string][] = [
  ['j k', 'next, previous'],
  ['Enter', 'open'],
  ['a', 'allow what is chosen'],
  ['A', 'allow it always, after a look at the rule'],
  ['d', 'deny it, with a reason'],
  ['1 … 9', 'choose an answer'],
  ['/', 'filter'],
  ['Ctrl K', 'go anywhere, do anything'],
  ['g o', 'overview'],
  ['g a', 'approvals'],
  ['g t', 'tasks'],
  ['g c', 'changes'],
  ['g d', 'directors'],
  ['g u', 'usage'],
  ['t', 'light or dark'],
  ['Esc', 'back'],
  ['?', 'these keys'],
]
const PLACES: Record<string, string> = { o: '/', a: '/approvals', t: '/tasks', c: '/changes', d: '/directors', u: '/usage' }
export const SEEN_MS = 500  // nothing is answered that has been chosen, or has stood where it stands, for less

let chosenAt = 0
let isGoing = false
chosen.watch(() => { chosenAt = performance.now() })

function items(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>('[data-item]')].filter(one => one.offsetParent !== null)
}

function find(): HTMLElement | undefined {
  return items().find(one => one.dataset['item'] === chosen.get())
}

function move(step: number): void {
  const all = items()
  if (!all.length) return
  const at = all.findIndex(one => one.dataset['item'] === chosen.get())
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))]!
  chosen.set(next.dataset['item']!)
  next.scrollIntoView({ block: 'nearest' })
}

/** Do what the chosen thing offers for this key; choose the first that offers it if none is. */
function act(key: string): boolean {
  const button = find()?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)
  if (button) {
    if (performance.now() - chosenAt >= SEEN_MS) button.click()
    return true
  }
  if (find()?.classList.contains('ask')) return false
  const first = items().find(one => one.querySelector(`[data-key="${CSS.escape(key)}"]`))
  if (!first) return false
  chosen.set(first.dataset['item']!)
  first.scrollIntoView({ block: 'nearest' })
  return true
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest('input, textarea, select, [contenteditable], .xterm') !== null
}

export function catchKeys(toggleTheme: () => void): void {
  document.addEventListener('keydown', event => {
    const { key } = event
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === 'k' && !(event.target as Element).closest?.('.xterm')) {
      event.preventDefault()
      over.set(over.get() === 'palette' ? '' : 'palette')
      return
    }
    if (key === 'Escape') return leave(event)
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || over.get()) return
    if (plain(key, event, toggleTheme)) event.preventDefault()
  })
}

function leave(event: KeyboardEvent): void {
  if (over.get()) return over.set('')
  if (event.target instanceof HTMLElement && event.target.closest('.xterm')) return
  const back = find()?.querySelector<HTMLElement>('[data-key="Escape"]')
  if (back) return back.click()
  if (event.target instanceof HTMLElement && isTyping(event.target)) event.target.blur()
  else chosen.set('')
}

function plain(key: string, event: KeyboardEvent, toggleTheme: () => void): boolean {
  if (isGoing) {
    isGoing = false
    const place = PLACES[key]
    if (place) go(place)
    return place !== undefined
  }
  switch (key) {
    case 'g': isGoing = true; setTimeout(() => { isGoing = false }, 1_500); return true
    case 'j': move(1); return true
    case 'k': move(-1); return true
    case '?': over.set('keys'); return true
    case '/': document.querySelector<HTMLElement>('[data-filter]')?.focus(); return true
    case 't': toggleTheme(); return true
    case 'Enter': {
      const item = find()
      if (!item || (event.target instanceof Element && event.target.closest('a, button, summary'))) return false
      ;(item instanceof HTMLAnchorElement ? item : item.querySelector('a'))?.click()
      return true
    }
    default: return act(key)
  }
}
