// What is on the branches, what conflicts, what lands.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Agent } from '../model/nouns.ts'
import { clashes } from '../model/conflicts.ts'
import { many } from '../model/text.ts'
import { get, path } from '../live/http.ts'
import { current, useWorld } from '../live/store.ts'
import { chosen } from '../live/keys.ts'
import { Changes as Work } from '../agent/changes.tsx'
import { ConflictRow, useConflicts } from '../parts/conflicts.tsx'
import { Icon, StateIcon } from '../parts/icons.tsx'
import { LandingRow } from '../parts/landing.tsx'
import { useCalm } from '../parts/fetched.tsx'
import { Chip, Empty, Literal, Problem } from '../parts/text.tsx'

interface Counts { files: number; added: number; deleted: number }
interface Diff { commit_count: number; committed: Counts; uncommitted: Counts; uncommitted_files: string[] }

const AT_ONCE = 3
const OVER = ['landed', 'cancelled', 'refused']

/** How far each branch is, asked for a few at a time: those whose agents something has happened to. */
function useDiffs(agents: Agent[], again: number): Record<string, Diff> {
  const [diffs, setDiffs] = useState<Record<string, Diff>>({})
  const returns = useWorld(world => world.returns)
  const names = agents.map(agent => agent.name).join('\n')
  const seen = useRef<Record<string, number>>({})  // by name, the last event before its diff was asked for
  useEffect(() => {
    const abort = new AbortController()
    const { touched } = current()
    const queue = names.split('\n').filter(name => name && seen.current[name] !== (touched[name] ?? 0))
    const work = async () => {
      for (let name = queue.shift(); name !== undefined && !abort.signal.aborted; name = queue.shift()) {
        try {
          const own = name
          const diff = await get<Diff>(`/agents${path(own)}/diff`, {}, abort.signal)
          seen.current[own] = touched[own] ?? 0
          setDiffs(before => ({ ...before, [own]: diff }))
        } catch {
          // Its row has no figures then; its own page says why.
        }
      }
    }
    for (let worker = 0; worker < AT_ONCE; worker++) void work()
    return () => abort.abort()
  }, [names, again, returns])
  return diffs
}

export function Changes({ name }: { name: string | null }) {
  const agents = useWorld(world => world.agents)
  const landings = useWorld(world => world.landings)
  const lastEvent = useWorld(world => world.lastEvent)
  const calm = useCalm(lastEvent, 2_000)
  const withTree = Object.values(agents).filter(agent => agent.worktree !== null).sort((a, b) => a.name.localeCompare(b.name))
  const diffs = useDiffs(withTree, calm)
  const conflicts = useConflicts()
  const inConflict = clashes(conflicts.value?.conflicts ?? [], agents, false)
  const open = landings.filter(one => !OVER.includes(one.status.state))
  const past = landings.filter(one => OVER.includes(one.status.state)).slice(-5).reverse()
  // What has work comes first; without a name the first of those is shown.
  const amount = (agent: Agent) => { const diff = diffs[agent.name]; return diff ? Number(diff.commit_count + diff.uncommitted_files.length > 0) : 0 }
  const sorted = [...withTree].sort((a, b) => amount(b) - amount(a))
  const shown = name ? agents[name] : sorted.find(agent => amount(agent) > 0)
  return (
    <div class="two">
      <h1 class="unseen">Changes</h1>
      <div class="stack">
        <section class="card rows" aria-label="Landing queue">
          <header><h2>Landing queue</h2><b class="badge">{open.length}</b></header>
          {open.length + past.length === 0 && <Empty title="Nothing waits to land" />}
          {open.map(one => <LandingRow key={one.id} landing={one} />)}
          {past.map(one => <LandingRow key={one.id} landing={one} />)}
        </section>
        {conflicts.error !== null && <Problem error={conflicts.error} />}
        {inConflict.length > 0 && (
          <section class="card rows" aria-label="Conflicts">
            <header><h2>Conflicts between branches</h2><b class="badge">{inConflict.length}</b></header>
            {inConflict.map(clash => <ConflictRow key={`${clash.one.name} ${clash.other.name}`} clash={clash} />)}
          </section>
        )}
        {conflicts.value?.conflicts.length === 0 && withTree.length > 1 && <p class="state done"><StateIcon look="done" /><span class="dim">No live branch conflicts with another.</span></p>}
        <section class="card rows" aria-label="Branches">
          <header><h2>Branches of agents</h2><b class="badge">{withTree.length}</b></header>
          {withTree.length === 0 && <Empty title="No agent has a worktree of its own" />}
          {sorted.map(agent => <Branch key={agent.name} agent={agent} diff={diffs[agent.name]} isOpen={agent === shown} />)}
        </section>
      </div>
      <section class="card panel" aria-label="Work" data-narrow-first={name ? 'yes' : undefined}>
        {shown
          ? <><div class="top">{name && <a class="icon-btn only-narrow" href="/changes" aria-label="All changes"><Icon name="back" /></a>}<h1><a href={`/agents${path(shown.name)}`}>{shown.name}</a></h1><Chip state={shown.state} /></div><div class="content" key={shown.name}><Work agent={shown} /></div></>
          : <Empty title={name ? `No agent called ${name}` : 'Nothing is changed anywhere'}>What agents commit is shown here.{name && <> A worktree of a task or a goal: <code>bullpen diff <Literal text={name} /></code></>}</Empty>}
      </section>
    </div>
  )
}

function Branch({ agent, diff, isOpen }: { agent: Agent; diff: Diff | undefined; isOpen: boolean }) {
  const key = `branch:${agent.name}`
  const isChosen = chosen.use() === key
  const work = diff && (diff.commit_count > 0 || diff.uncommitted_files.length > 0)
  return (
    <a class={`row${isOpen || isChosen ? ' chosen' : ''}`} href={`/changes${path(agent.name)}`} data-item={key}>
      <span class={`state ${work ? '' : 'idle'}`}><Icon name="branch" size={15} /></span>
      <span class="who"><b>{agent.name}</b> <span class="what">{diff ? work ? [diff.commit_count > 0 && many(diff.commit_count, 'commit'), diff.uncommitted_files.length > 0 && `${many(diff.uncommitted_files.length, 'file')} not committed`].filter(Boolean).join(' · ') : 'nothing changed' : '…'}</span></span>
      <span class="fig">{work && diff && <><span class="good">+{diff.committed.added + diff.uncommitted.added}</span> <span class="bad">−{diff.committed.deleted + diff.uncommitted.deleted}</span></>}</span>
    </a>
  )
}
