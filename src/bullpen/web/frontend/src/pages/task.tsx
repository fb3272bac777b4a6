// One task: what it says and does as it happens, its result, what may be done to it.
import { useEffect, useState } from 'preact/hooks'
import type { Task } from '../model/nouns.ts'
import { refresh } from '../live/connect.ts'
import { fresh, get, path, post } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { addSaid, followTask, type Said } from '../live/task.ts'
import { Icon } from '../parts/icons.tsx'
import { useOnce } from '../parts/once.ts'
import { figures, Logs, TaskState } from '../parts/tasks.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'
import { say, sayRefused } from '../parts/toasts.tsx'

const OVER = ['completed', 'failed', 'cancelled']

export function TaskPage({ id }: { id: string }) {
  const open = useWorld(world => world.tasks.find(task => task.task_id === id))
  const isLive = useWorld(world => world.link.is === 'live')
  const [task, setTask] = useState<Task | null>(null)
  const [said, setSaid] = useState<Said[]>([])
  const [error, setError] = useState<unknown>(null)
  const [isLogs, setLogs] = useState(false)
  useEffect(() => {
    const abort = new AbortController()
    const look = () => get<Task>(`/task${path(id)}`, {}, abort.signal).then(setTask, failure => { if (!abort.signal.aborted) setError(failure) })
    void look()
    followTask(id, abort.signal, heard => setSaid(before => heard.reduce(addSaid, before)), ended => { setTask(ended); refresh(['tasks']) })
      .catch((failure: unknown) => { if (!abort.signal.aborted) setError(failure) })
    return () => abort.abort()
  }, [id])
  // What the list knows is newer while it is open; when it leaves the list, it is over.
  useEffect(() => {
    if (open) setTask(open)
    else if (task && !OVER.includes(task.state)) get<Task>(`/task${path(id)}`).then(setTask, () => {})
  }, [open])
  if (error && !task) return <section class="card pad"><Problem error={error} /></section>
  if (!task) return <section class="card"><Empty title="Looking for it…" /></section>
  const isOver = OVER.includes(task.state)
  const act = async (what: 'cancel' | 'end') => {
    try {
      const moved = await post<{ message: string }>(`/task${path(id)}/${what}`, what === 'end' ? { request: fresh() } : {})
      say(moved.message || `told to ${what}`)
      refresh(['tasks'])
    } catch (failure) {
      sayRefused(failure)
    }
  }
  return (
    <section class="card" aria-label={`task ${id}`}>
      <header class="wraps">
        <a class="icon-btn only-narrow" href="/tasks" aria-label="All tasks"><Icon name="back" /></a>
        <h2 class="mono">{id}</h2><TaskState task={task} />
        <span class="right dim small">{figures(task)}</span>
      </header>
      <div class="pad stack">
        <div><p class="said-by">prompt{task.agent && <> for <a href={`/agents${path(task.agent)}`}>{task.agent}</a></>}</p><div class="said prompt"><Literal text={task.prompt} /></div></div>
        <div class="stack" role="log" aria-label="progress">
          {said.map((one, at) => one.is === 'text'
            ? <div key={at} class="said"><Literal text={one.text} /></div>
            : one.is === 'tool'
              ? <div key={at} class="tool"><div class="pad-small"><b><Literal text={one.tool} /></b> <code class="dim"><Literal text={one.detail} /></code></div></div>
              : <p key={at} class={one.isBad ? 'bad' : 'wait'}><Literal text={one.text} /></p>)}
        </div>
        {isOver && task.output && !said.some(one => one.is === 'text') && <div class="said"><Literal text={task.output} /></div>}
        {task.error && <Problem error={Object.assign(new Error(`${task.error.type}: ${task.error.message}`))} />}
        {task.state === 'idle' && <Continue task={task} />}
        <div class="acts">
          {(task.state === 'working' || task.state === 'queued') && <button class="btn danger" disabled={!isLive} onClick={() => void act('cancel')}>Cancel</button>}
          {task.state === 'idle' && <button class="btn" disabled={!isLive} onClick={() => void act('end')}>End it</button>}
          {isOver && <button class="btn" aria-expanded={isLogs} onClick={() => setLogs(!isLogs)}>{isLogs ? 'Hide' : 'Show'} changes and logs</button>}
        </div>
      </div>
      {isLogs && <Logs id={id} />}
    </section>
  )
}

function Continue({ task }: { task: Task }) {
  const isLive = useWorld(world => world.link.is === 'live')
  const [prompt, setPrompt] = useState('')
  const once = useOnce()
  const [error, setError] = useState<unknown>(null)
  const go = async () => {
    setError(null)
    try {
      await post(`/task${path(task.task_id)}/continue`, { prompt, request: once.id(prompt) })
      setPrompt('')
      once.done()
      refresh(['tasks'])
    } catch (failure) {
      setError(failure)
    }
  }
  return (
    <>
      <form class="compose" onSubmit={event => { event.preventDefault(); void go() }}>
        <textarea aria-label="Go on with" placeholder="Go on with…" value={prompt} onInput={event => setPrompt(event.currentTarget.value)} />
        <button class="btn main" disabled={!isLive || !prompt.trim()}>Go on</button>
      </form>
      {error !== null && <Problem error={error} />}
    </>
  )
}
