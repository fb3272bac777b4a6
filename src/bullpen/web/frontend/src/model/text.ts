// How texts and numbers are shown. Pure.

// What shows nothing, or changes how its neighbours look: it is written as ⟨U+202E⟩, as the hub
// does. Line breaks and tabs stay.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff]|[\u{1d173}-\u{1d17a}]|[\u{e0000}-\u{e0fff}]/gu

// So many blanks may push what follows out of sight.
const EMPTY = /[ \t]{80,}/g

/** The text with everything invisible written out, and long empty stretches counted. */
export function literal(text: string): string {
  return text
    .replace(HIDDEN, one => `⟨U+${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`)
    .replace(EMPTY, blanks => `⟨${blanks.length} spaces⟩`)
}

/** The same in one line. */
export function oneLine(text: string): string {
  return literal(text.replace(/\s+/g, ' ').trim())
}

/** `12 s`, `4 min`, `1 h 02`, `3 d`. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds))
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min`
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')}`
  return `${Math.floor(whole / 86400)} d`
}

/** `14:02`, with the date when it was not today. */
export function clock(at: number, now: number = Date.now() / 1000): string {
  const when = new Date(at * 1000)
  return dated(when, `${two(when.getHours())}:${two(when.getMinutes())}`, now)
}

/** `14:02:09`, with the date when it was not today. */
export function exactClock(at: number, now: number = Date.now() / 1000): string {
  const when = new Date(at * 1000)
  return dated(when, `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`, now)
}

function dated(when: Date, time: string, now: number): string {
  const isToday = when.toDateString() === new Date(now * 1000).toDateString()
  return isToday ? time : `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${time}`
}

function two(number: number): string {
  return String(number).padStart(2, '0')
}

/** `950`, `41.2k`, `1.5M`. */
export function count(number: number): string {
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (number >= size * 0.99995) return `${(number / size).toFixed(1).replace(/\.0$/, '')}${unit}`
  }
  return String(Math.floor(number))
}

/** `$0.38`; less than a cent is not shown as nothing. */
export function money(usd: number): string {
  if (usd > 0 && usd < 0.005) return '<$0.01'
  return `$${usd.toFixed(2).replace(/\B(?=(\d{3})+(?!\d))/g, ',')}`
}

const FEW_LINES = 8
const FEW_CHARACTERS = 400

/** How long a text is whose end may not be seen: `200 lines`; nothing for a short one. */
export function sizeOf(text: string): string {
  const lines = text.replace(/\n$/, '').split('\n').length
  if (lines > FEW_LINES) return many(lines, 'line')
  return text.length > FEW_CHARACTERS ? many(text.length, 'character') : ''
}

/** `1 agent`, `2 agents`. */
export function many(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
