// Which branches conflict: looked at again when something has happened to one of them, now and then.
import { useEffect, useRef, useState } from 'preact/hooks'
import { clashes, type Clash, type ConflictList, fileNames, lastOnBranches, type Side } from '../model/conflicts.ts'
import { get, path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { useCalm } from './fetched.tsx'
import { Icon } from './icons.tsx'
import { Literal } from './text.tsx'

const CALM_MS = 3_000
const FAILED_SECONDS = 15
const SHOWN = 5

interface Known { value: ConflictList | null; error: unknown }
const NOTHING: Known = { value: null, error: null }

export function useConflicts(): Known {
  const event = useWorld(world => lastOnBranches(world))
  const hasTwo = useWorld(world => Object.values(world.agents).filter(agent => agent.worktree).length > 1)
  const calm = useCalm(event, CALM_MS)
  const returns = useWorld(world => world.returns)
  const last = useRef(event)
  last.current = event
  const [known, setKnown] = useState(NOTHING)
  useEffect(() => {
    if (!hasTwo) return setKnown(NOTHING)
    const abort = new AbortController()
    let timer = 0
    const again = (seconds: number) => {
      timer = window.setTimeout(() => { if (document.visibilityState === 'visible') look(); else again(seconds) }, seconds * 1_000)
    }
    const look = () => void get<ConflictList>('/conflicts', { event: last.current }, abort.signal).then(
      value => { setKnown({ value, error: null }); again(value.again_seconds) },
      (error: unknown) => { if (!abort.signal.aborted) { setKnown({ value: null, error }); again(FAILED_SECONDS) } },
    )
    look()
    return () => { abort.abort(); clearTimeout(timer) }
  }, [calm, hasTwo, returns])
  return known
}

/** On the overview: calm, and nothing where nothing conflicts. */
export function ConflictsCard() {
  const { value } = useConflicts()
  const agents = useWorld(world => world.agents)
  const all = clashes(value?.conflicts ?? [], agents, true)
  if (!all.length) return null
  return (
    <section class="card" aria-label="Conflicts">
      <header><h2>Branches that conflict</h2><b class="badge">{all.length}</b><a class="right small" href="/changes">Changes</a></header>
      {all.slice(0, SHOWN).map(clash => <ConflictRow key={`${clash.one.name} ${clash.other.name}`} clash={clash} />)}
      {all.length > SHOWN && <p class="pad small"><a href="/changes">{all.length - SHOWN} more</a></p>}
    </section>
  )
}

export function ConflictRow({ clash: { one, other, files } }: { clash: Clash }) {
  return (
    <div class="row tall">
      <span class="state wait"><Icon name="branch" size={15} /></span>
      <span class="anywhere"><Who side={one} /> <span class="what">and</span> <Who side={other} /> <span class="what">· <Literal text={fileNames(files)} /></span></span>
    </div>
  )
}

function Who({ side: { name, agent } }: { side: Side }) {
  return agent ? <a href={`/agents${path(name)}/changes`}><b><Literal text={name} /></b></a> : <code><Literal text={name} /></code>
}
