// Tasks in lists: those that are open, and the history in pages with logs on demand.
import { useState } from 'preact/hooks'
import type { Task, WholeTask } from '../model/nouns.ts'
import type { Look } from '../model/states.ts'
import { clock, count, money, oneLine, span } from '../model/text.ts'
import { path } from '../live/http.ts'
import { Patch } from './diff.tsx'
import { useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Ago, Empty, Literal, Problem } from './text.tsx'

const LIMIT = 20
export const TASK_LOOKS: Record<Task['state'], Look> = {
  queued: 'wait', working: 'work', idle: 'idle', completed: 'done', failed: 'bad', cancelling: 'wait', cancelled: 'idle',
}
const WORDS: Record<Task['state'], string> = {
  queued: 'queued', working: 'working', idle: 'open, waits for you', completed: 'completed', failed: 'failed', cancelling: 'is being cancelled', cancelled: 'cancelled',
}

export function TaskState({ task }: { task: Task }) {
  const look = TASK_LOOKS[task.state]
  return <span class={`state ${look}`}><StateIcon look={look} />{WORDS[task.state]}{task.doing && <> · <Literal text={task.doing} /></>}</span>
}

export function figures(task: Task): string {
  const tokens = task.token_usage ? `${count(task.token_usage.input + task.token_usage.output)} tokens` : ''
  const usd = task.cost_usd ? money(task.cost_usd) : ''
  const time = task.duration_seconds !== null ? span(task.duration_seconds) : ''
  return [time, tokens, usd].filter(Boolean).join(' · ')
}

export function OpenTask({ task }: { task: Task }) {
  const look = TASK_LOOKS[task.state]
  return (
    <a class="row" href={`/tasks${path(task.task_id)}`} data-item={`task:${task.task_id}`}>
      <span class={`state ${look}`}><StateIcon look={look} /></span>
      <span class="who"><b>{task.agent ?? 'whoever is free'}</b> <span class="what">{WORDS[task.state]}{task.doing && <> · <Literal text={task.doing} /></>} · <Literal text={oneLine(task.prompt)} /></span></span>
      <span class="fig"><span>{figures(task)}</span><span><Ago at={task.created_at} /></span></span>
    </a>
  )
}

interface Page { items: Task[]; page: number; limit: number; total: number }

export function TaskHistory({ agent = '', again = 0 }: { agent?: string; again?: unknown }) {
  const [page, setPage] = useState(1)
  const [text, setText] = useState('')
  const where = agent ? `/agents${path(agent)}/history` : '/history'
  const { value, error } = useFetched<Page>(where, { page, limit: LIMIT, ...(text ? { text } : {}) }, again)
  const pages = value ? Math.max(1, Math.ceil(value.total / LIMIT)) : 1
  return (
    <section class="card" aria-label="History">
      <header>
        <h2>History</h2>{value && <b class="badge">{value.total}</b>}
        <input class="right narrow" type="search" aria-label="Find in prompts and outputs" placeholder="In prompts and outputs" value={text} onInput={event => { setPage(1); setText(event.currentTarget.value) }} />
      </header>
      {error !== null && <div class="pad"><Problem error={error} /></div>}
      {value?.total === 0 && <Empty title={text ? 'Nothing found' : 'No tasks yet'} />}
      {value?.items.map(task => <Past key={task.task_id} task={task} />)}
      {pages > 1 && (
        <div class="acts pad">
          <button class="btn tiny" disabled={page === 1} onClick={() => setPage(page - 1)}>Newer</button>
          <span class="dim">page {page} of {pages}</span>
          <button class="btn tiny" disabled={page >= pages} onClick={() => setPage(page + 1)}>Older</button>
        </div>
      )}
    </section>
  )
}

function Past({ task }: { task: Task }) {
  const [isOpen, setOpen] = useState(false)
  const look = TASK_LOOKS[task.state]
  return (
    <div class="past">
      <div class="row">
        <span class={`state ${look}`}><StateIcon look={look} /></span>
        <span class="who"><a href={`/tasks${path(task.task_id)}`}><b>{task.agent ?? 'nobody'}</b></a> <span class="what">{WORDS[task.state]} · <Literal text={oneLine(task.prompt)} /></span></span>
        <span class="fig"><span class="hide-phone">{figures(task)}</span><span>{clock(task.created_at)}</span> <button class="btn tiny" aria-expanded={isOpen} aria-label={`Logs of ${task.task_id}`} onClick={() => setOpen(!isOpen)}>{isOpen ? '−' : '+'}</button></span>
      </div>
      {isOpen && <Logs id={task.task_id} />}
    </div>
  )
}

/** Everything that is kept of a task. */
export function Logs({ id }: { id: string }) {
  const { value, error } = useFetched<WholeTask>(`/history${path(id)}`)
  if (error) return <div class="pad"><Problem error={error} /></div>
  if (!value) return <p class="pad dim">Reading the logs…</p>
  const patches = [value.changes?.committed, value.changes?.uncommitted, value.diff].filter((text): text is string => Boolean(text))
  return (
    <div class="pad stack">
      {value.output && <div class="said"><Literal text={value.output} /></div>}
      {value.error && <Problem error={new Error(value.error.message)} />}
      {value.warnings.map(warning => <p key={warning} class="wait"><Literal text={warning} /></p>)}
      {value.commits.length > 0 && <ul>{value.commits.map(commit => <li key={commit} class="mono small"><Literal text={commit} /></li>)}</ul>}
      {patches.map((text, at) => <Patch key={at} text={text} />)}
      {value.logs.map(log => (
        <details key={log.number} class="tool">
          <summary><b>Run {log.number}</b><span class="dim">what its program wrote</span></summary>
          <pre tabIndex={0} role="group" aria-label={`log of run ${log.number}`}><Literal text={log.stdout || '(nothing)'} />{log.stderr && <>{'\n\n'}<Literal text={log.stderr} /></>}</pre>
        </details>
      ))}
    </div>
  )
}
