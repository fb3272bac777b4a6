// Land work, or discard an agent's; each after a question.
import { useState } from 'preact/hooks'
import type { Agent, Landing } from '../model/nouns.ts'
import { many } from '../model/text.ts'
import { refresh } from '../live/connect.ts'
import { path, post, remove } from '../live/http.ts'
import { go } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { Confirm } from './dialog.tsx'
import { say } from './toasts.tsx'

/** `name`: the agent, or the worktree if none has it. */
export function LandButton({ name, branch, commits, loose }: { name: string; branch: string; commits: number; loose: number }) {
  const [isAsking, setAsking] = useState(false)
  const [into, setInto] = useState('')
  const waiting = useWorld(world => world.landings.find(one => one.name === name && !['landed', 'refused', 'cancelled'].includes(one.status.state)))
  const isLive = useWorld(world => world.link.is === 'live')
  const land = async () => {
    const { landings } = await post<{ landings: Landing[] }>('/landings', { names: [name], ...(into ? { into } : {}) })
    say(`${name} is in the queue of ${landings[0]?.target ?? 'its target'}`)
    refresh(['landings'])
  }
  const takeOut = async () => {
    await remove(`/landings${path(name)}`)
    say(`${name} was taken out of the queue`)
    refresh(['landings'])
  }
  return (
    <>
      {waiting ? <button class="btn" disabled={!isLive} onClick={() => void takeOut()}>Take out of the queue</button>
        : <button class="btn main" disabled={!isLive || commits === 0} aria-label={`Land… ${name}`} onClick={() => setAsking(true)}>Land…</button>}
      {isAsking && (
        <Confirm title={`Land the work of ${name}?`} does="Land" onDo={land} onClose={() => setAsking(false)}>
          <p>{many(commits, 'commit')} of <code>{branch}</code> will be merged with the target branch, checked if a check is set, and only then the target moves.{loose > 0 && <> <b>{many(loose, 'file')} that {loose === 1 ? 'is' : 'are'} not committed will not land.</b></>}</p>
          <label><span>Into another branch than usual</span><input value={into} placeholder="as its role or project says" maxLength={250} onInput={event => setInto(event.currentTarget.value)} /></label>
        </Confirm>
      )}
    </>
  )
}

export function DiscardButton({ agent, loose }: { agent: Agent; loose: number }) {
  const [isAsking, setAsking] = useState(false)
  const isLive = useWorld(world => world.link.is === 'live')
  const discard = async () => {
    // Files that the question did not name are a reason to refuse.
    const drops = loose > 0 ? '?discard=1' : ''
    const gone = await post<{ branch_left: string; unique_commits: number }>(`/agents${path(agent.name)}/remove${drops}`)
    say(gone.branch_left ? `${agent.name} is removed; its branch ${gone.branch_left} stays, with ${many(gone.unique_commits, 'commit')} that exist nowhere else` : `${agent.name} is removed`)
    refresh(['agents'])
    go('/')
  }
  return (
    <>
      <button class="btn danger" disabled={!isLive} onClick={() => setAsking(true)}>Discard…</button>
      {isAsking && (
        <Confirm title={`Discard ${agent.name}?`} does="Discard" isDanger onDo={discard} onClose={() => setAsking(false)}>
          <p>It is stopped, and its session and worktree are removed.{loose > 0 && <> <b>{many(loose, 'file')} that {loose === 1 ? 'is' : 'are'} not committed {loose === 1 ? 'is' : 'are'} dropped</b>, and kept aside for 30 days: <code>bullpen worktree restore {agent.name}</code>.</>} A branch with commits that exist nowhere else stays.</p>
        </Confirm>
      )}
    </>
  )
}
