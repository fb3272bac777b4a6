// What an agent has done to its branch, and what may be done with it.
import type { Agent } from '../model/nouns.ts'
import { many } from '../model/text.ts'
import { path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { LandingRow } from '../parts/landing.tsx'
import { DiscardButton, LandButton } from '../parts/land.tsx'
import { Patch } from '../parts/diff.tsx'
import { useCalm, useFetched } from '../parts/fetched.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'

interface Diff { where: string; commits: string[]; commit_count: number; uncommitted_files: string[] }
interface Patches { base: string; committed: string; uncommitted: string }

export function Changes({ agent }: { agent: Agent }) {
  const calm = useCalm(useWorld(world => world.touched[agent.name]), 1_500)
  const landing = useWorld(world => world.landings.findLast(one => one.name === agent.name))
  const base = agent.worktree ? `/agents${path(agent.name)}` : null
  const diff = useFetched<Diff>(base && `${base}/diff`, {}, calm)
  const patch = useFetched<Patches>(base && `${base}/patch`, {}, calm)
  if (!agent.worktree) return <Empty title="No worktree of its own">It works in <code>{agent.cwd}</code>.</Empty>
  if (diff.error) return <Problem error={diff.error} />
  if (!diff.value) return <p class="dim">Looking at its branch…</p>
  const { commits, commit_count: number, uncommitted_files: loose, where } = diff.value
  return (
    <div class="stack">
      <div class="acts">
        <span>{many(number, 'commit')} on <code><Literal text={agent.birth_branch} /></code>{where && <> · works <Literal text={where} /></>}{loose.length > 0 && <> · {many(loose.length, 'file')} not committed</>}</span>
        <span class="right acts"><LandButton name={agent.name} branch={agent.birth_branch} commits={number} loose={loose.length} /><DiscardButton agent={agent} loose={loose.length} /></span>
      </div>
      {landing && <div class="card rows"><LandingRow landing={landing} /></div>}
      {number === 0 && loose.length === 0 && <Empty title="Nothing is changed" />}
      {commits.length > 0 && <ul class="card pad">{[...commits].reverse().map(commit => <li key={commit} class="mono small"><Literal text={commit} /></li>)}</ul>}
      {patch.error !== null && <Problem error={patch.error} />}
      {patch.value?.committed && <section><h2 class="h">Committed since {patch.value.base && <code><Literal text={patch.value.base.slice(0, 7)} /></code>}</h2><Patch text={patch.value.committed} /></section>}
      {patch.value?.uncommitted && <section><h2 class="h">Not committed</h2><Patch text={patch.value.uncommitted} /></section>}
    </div>
  )
}
