// Texts of others: shown as they are, what is invisible in them made visible.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { State } from '../model/nouns.ts'
import { detailOf, lookOf } from '../model/states.ts'
import { literal, span } from '../model/text.ts'
import { useWorld } from '../live/store.ts'
import { StateIcon } from './icons.tsx'

const MARKS = /(⟨U\+[0-9A-F]{4,6}⟩|⟨[0-9]+ spaces⟩)/

/** A text with its invisible characters written out and marked. */
export function Literal({ text }: { text: string }) {
  const parts = literal(text).split(MARKS)
  if (parts.length === 1) return <>{parts[0]}</>
  return <>{parts.map((part, at) => (at % 2 ? <span key={at} class="hidden-char">{part}</span> : part))}</>
}

/** What a tool wants, as the hub says it: first what it is mostly about, then `⟨name⟩ value` for
 *  each other field. No value can hold such a mark at the beginning of a line. */
export function Command({ text }: { text: string }) {
  const [first = '', ...fields] = text.split(/\n(?=⟨[A-Za-z_][A-Za-z0-9_]*⟩ )/)
  return (
    <>
      <pre class="cmd" tabIndex={0} role="group" aria-label="what it wants to do"><Literal text={first} /></pre>
      {fields.map(field => {
        const [, name = '', value = ''] = /^⟨([^⟩]*)⟩ ([^]*)$/.exec(field) ?? []
        return <p key={name} class="note said"><span class="dim">{name}:</span> <Literal text={value} /></p>
      })}
    </>
  )
}

/** A state by shape, word and colour. Of the past while the page is behind. */
export function Chip({ state, short = false }: { state: State; short?: boolean }) {
  const isLive = useWorld(world => world.link.is === 'live')
  const look = lookOf(state)
  const detail = detailOf(state)
  const word = `${isLive ? '' : 'was '}${state.state}`
  return (
    <span class={`state ${look}`}>
      <StateIcon look={look} />
      <span>{short ? word : <Literal text={detail ? `${word} (${detail})` : word} />}</span>
    </span>
  )
}

// One clock for all ages on the page.
const ticks = new Set<() => void>()
setInterval(() => { if (document.visibilityState === 'visible') for (const tick of ticks) tick() }, 1_000)

export function Ago({ at }: { at: number }) {
  const place = useRef<HTMLTimeElement>(null)
  const age = () => span(Date.now() / 1000 - at)
  useEffect(() => {
    // Written past Preact: hundreds of them tick every second.
    const tick = () => {
      const text = place.current?.firstChild
      if (text && text.nodeValue !== age()) text.nodeValue = age()
    }
    tick()
    ticks.add(tick)
    return () => { ticks.delete(tick) }
  })
  return <time key={at} ref={place} dateTime={new Date(at * 1000).toISOString()} title={new Date(at * 1000).toLocaleString()}>{age()}</time>
}

export function Problem({ error }: { error: unknown }) {
  const message = error instanceof Error ? error.message : String(error)
  const hint = error && typeof error === 'object' && 'hint' in error ? String(error.hint) : ''
  return (
    <div class="problem" role="alert">
      <StateIcon look="bad" />
      <div><p><Literal text={message} /></p>{hint && <p class="dim small"><Literal text={hint} /></p>}</div>
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><b>{title}</b>{children}</div>
}
