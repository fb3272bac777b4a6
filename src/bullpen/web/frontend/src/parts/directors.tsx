// What brings work in by itself, each in a line.
import { useEffect, useState } from 'preact/hooks'
import { directorDetail, directorLook, directorState, isNotable } from '../model/director.ts'
import type { Director } from '../model/nouns.ts'
import { path } from '../live/http.ts'
import { chosen } from '../live/keys.ts'
import { useWorld } from '../live/store.ts'
import { type Fetched, useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Ago, Literal } from './text.tsx'

const LOOK_MS = 5_000

export function useDirectors(): Fetched<Director[]> {
  const [round, setRound] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => { if (document.visibilityState === 'visible') setRound(n => n + 1) }, LOOK_MS)
    return () => clearInterval(timer)
  }, [])
  return useFetched<Director[]>('/directors', {}, round)
}

export function DirectorRow({ director, isOpen = false }: { director: Director; isOpen?: boolean }) {
  const isLive = useWorld(world => world.link.is === 'live')
  const key = `director:${director.name}`
  const isChosen = chosen.use() === key
  const look = directorLook(director)
  const detail = directorDetail(director)
  return (
    <a class={`row${isChosen || isOpen ? ' chosen' : ''}`} href={`/directors${path(director.name)}`} data-item={key} aria-current={isOpen ? 'page' : undefined}>
      <span class={`state ${look}`}><StateIcon look={look} /></span>
      <span class="who"><b>{director.name}</b> <span class="what"><span class={look === 'bad' ? look : ''}>{isLive ? '' : 'was '}{directorState(director, Date.now() / 1000)}</span>{detail && <> · <Literal text={detail} /></>}</span></span>
      <span class="fig">{director.since !== null && <Ago at={director.since} />}</span>
    </a>
  )
}

/** On the overview: those that somebody started, or cannot start. */
export function DirectorsCard() {
  const { value } = useDirectors()
  const notable = (value ?? []).filter(isNotable)
  if (!notable.length) return null
  return (
    <section class="card" aria-label="Directors">
      <header><h2>Directors</h2><b class="badge">{notable.length}</b><a class="right small" href="/directors">All</a></header>
      {notable.map(one => <DirectorRow key={one.name} director={one} />)}
    </section>
  )
}
