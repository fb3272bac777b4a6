// What else runs on this machine: other views, components of other homes. What only a
// look at its ports has found may say of itself what it likes: it is shown, and leads nowhere.
import { useEffect, useState } from 'preact/hooks'
import type { Component } from '../model/nouns.ts'
import type { Look } from '../model/states.ts'
import { useWorld } from '../live/store.ts'
import { useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Literal } from './text.tsx'

const LOOK_MS = 10_000
const MOST = 6
const LOOKS: Record<Component['health'], Look> = { healthy: 'done', warning: 'wait', unreachable: 'bad' }

export function Components() {
  const [round, setRound] = useState(0)
  const isLive = useWorld(world => world.link.is === 'live')
  const { value } = useFetched<Component[]>('/discovered', {}, round)
  useEffect(() => {
    const timer = setInterval(() => { if (document.visibilityState === 'visible') setRound(n => n + 1) }, LOOK_MS)
    return () => clearInterval(timer)
  }, [])
  // This home's agents are in the list of agents, and this page is its view.
  const shown = (value ?? []).filter(one => !(one.own && ['agent', 'director', 'hub', 'view'].includes(one.kind)))
  if (!shown.length) return null
  return (
    <section class="card" aria-label="Other components">
      <header><h2>Also on this machine</h2><b class="badge">{shown.length}</b></header>
      {shown.slice(0, MOST).map(one => (
        <div key={`${one.url} ${one.name}`} class="row">
          <span class={`state ${LOOKS[one.health]}`}><StateIcon look={LOOKS[one.health]} /></span>
          <span class="who"><b><Literal text={one.name} /></b> <span class="what"><Literal text={words(one, isLive)} /></span></span>
          <span class="fig">{one.own ? '' : 'another home'}</span>
        </div>
      ))}
      {shown.length > MOST && <p class="pad dim small">and {shown.length - MOST} more · <code>bullpen discover</code></p>}
    </section>
  )
}

function words({ name, kind, state, health }: Component, isLive: boolean): string {
  const isNow = isLive && health === 'healthy'
  const known = state ? `${isNow ? '' : 'was '}${state}` : ''
  const problem = health === 'healthy' ? '' : health === 'warning' ? 'does not answer' : 'unreachable'
  return [kind === name ? '' : kind, problem, known].filter(Boolean).join(' · ')
}
