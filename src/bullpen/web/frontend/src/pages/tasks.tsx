// Give a task, see what becomes of it, go on with it; and all that were.
import { useState } from 'preact/hooks'
import type { Agent } from '../model/nouns.ts'
import { refresh } from '../live/connect.ts'
import { path, post } from '../live/http.ts'
import { go } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { useFetched } from '../parts/fetched.tsx'
import { useOnce } from '../parts/once.ts'
import { OpenTask, TaskHistory } from '../parts/tasks.tsx'
import { Empty, Problem } from '../parts/text.tsx'
import { TaskPage } from './task.tsx'

export function Tasks({ id }: { id: string | null }) {
  const open = useWorld(world => world.tasks)
  return (
    <div class="two tasks">
      <h1 class="unseen">Tasks</h1>
      <div class="stack">
        <Form />
        {open.length > 0 && <section class="card rows" aria-label="Open tasks"><header><h2>Open</h2><b class="badge">{open.length}</b></header>{open.map(task => <OpenTask key={task.task_id} task={task} />)}</section>}
      </div>
      <div class="stack" data-narrow-first={id ? 'yes' : undefined}>
        {id && <TaskPage key={id} id={id} />}
        <TaskHistory again={open.length} />
      </div>
    </div>
  )
}

interface Project { name: string; error: string | null }

function isFree(agent: Agent): boolean {
  return agent.kind === 'headless' && agent.running && agent.state.state === 'idle' && !agent.state.limited_until
}

function Form() {
  const agents = useWorld(world => world.agents)
  const isLive = useWorld(world => world.link.is === 'live')
  const projects = useFetched<Project[]>('/projects')
  const takers = Object.values(agents).filter(agent => agent.kind === 'headless' && agent.running)
  const free = takers.filter(isFree)
  const [fields, setFields] = useState({ agent: '', prompt: '', project: '', workdir: '', repo: '', worktree: '', session_id: '', minutes: '', model: '', keep_open: false })
  const once = useOnce()
  const [error, setError] = useState<unknown>(null)
  const [isSent, setSent] = useState(false)
  const [isMore, setMore] = useState(false)
  const set = (next: Partial<typeof fields>) => setFields({ ...fields, ...next })
  // Whoever was chosen stays it, and is waited for: what was meant for one is given to nobody else.
  const isTaken = fields.agent !== '' && !free.some(agent => agent.name === fields.agent)
  const isReady = isLive && !isSent && !isTaken && fields.prompt.trim() !== ''
  const give = async () => {
    if (!isReady) return
    setSent(true)
    setError(null)
    const body = {
      prompt: fields.prompt, request: once.id(fields), keep_open: fields.keep_open,
      ...(fields.project ? { project: fields.project } : {}), ...(fields.workdir ? { workdir: fields.workdir } : {}),
      ...(fields.repo ? { repo: fields.repo, ...(fields.worktree ? { worktree: fields.worktree } : {}) } : {}),
      ...(fields.session_id ? { session_id: fields.session_id } : {}), ...(fields.model ? { model: fields.model } : {}),
      ...(fields.minutes ? { timeout_seconds: Number(fields.minutes) * 60 } : {}),
    }
    try {
      const where = fields.agent ? `/agents${path(fields.agent)}/task` : '/tasks'
      const { task_id: id } = await post<{ task_id: string }>(where, body)
      set({ prompt: '' })
      once.done()
      refresh(['tasks', 'agents'])
      go(`/tasks${path(id)}`)
    } catch (failure) {
      setError(failure)
    } finally {
      setSent(false)
    }
  }
  if (!takers.length) {
    return <section class="card" aria-label="New task"><header><h2>New task</h2></header><Empty title="No agent takes tasks"><code>bullpen agent start NAME</code></Empty></section>
  }
  return (
    <section class="card" aria-label="New task">
      <header><h2>New task</h2></header>
      <form class="pad stack" onSubmit={event => { event.preventDefault(); void give() }}>
        <label><span>Agent</span>
          <select value={fields.agent} onChange={event => set({ agent: event.currentTarget.value })}>
            <option value="">Whoever is free ({free.length} of {takers.length})</option>
            {isTaken && <option value={fields.agent}>{fields.agent} · not free now</option>}
            {free.map(agent => <option key={agent.name} value={agent.name}>{agent.name}{agent.role ? ` · ${agent.role}` : ''}</option>)}
          </select>
        </label>
        <label><span>Prompt</span><textarea required rows={5} value={fields.prompt} onInput={event => set({ prompt: event.currentTarget.value })}
          onKeyDown={event => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void give() }} /></label>
        {isMore && (
          <>
            {projects.value && projects.value.length > 0 && (
              <label><span>Project</span><select value={fields.project} onChange={event => set({ project: event.currentTarget.value })}><option value="">None</option>{projects.value.filter(one => !one.error).map(one => <option key={one.name}>{one.name}</option>)}</select></label>
            )}
            <label><span>Directory</span><input value={fields.workdir} placeholder="of the agent" onInput={event => set({ workdir: event.currentTarget.value })} /></label>
            <label><span>Repository</span><input value={fields.repo} placeholder="a path, or an address to clone" onInput={event => set({ repo: event.currentTarget.value })} /></label>
            {fields.repo && <label><span>Branch of its worktree</span><input value={fields.worktree} placeholder="a new one, or one that is there" onInput={event => set({ worktree: event.currentTarget.value })} /></label>}
            <label><span>Session to go on with</span><input value={fields.session_id} placeholder="a new one" onInput={event => set({ session_id: event.currentTarget.value })} /></label>
            <label><span>Time-out in minutes</span><input type="number" min="1" max="10080" value={fields.minutes} placeholder="as its role says" onInput={event => set({ minutes: event.currentTarget.value })} /></label>
            <label><span>Model</span><input value={fields.model} placeholder="as its role says" onInput={event => set({ model: event.currentTarget.value })} /></label>
            <label class="small"><input class="auto" type="checkbox" checked={fields.keep_open} onChange={() => set({ keep_open: !fields.keep_open })} /> keep it open: I go on after its answer</label>
          </>
        )}
        {error !== null && <Problem error={error} />}
        <div class="acts">
          <button class="btn main" disabled={!isReady}>{isSent ? 'Giving…' : 'Give the task'}</button>
          <button type="button" class="btn plain" aria-expanded={isMore} onClick={() => setMore(!isMore)}>{isMore ? 'Less' : 'More'}</button>
        </div>
      </form>
    </section>
  )
}

