// Directors: what brings work in by itself, how each stands, what it holds, what comes next.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { canLand, directorLook, directorState, goalBranch, lastLook, lastRun, overLook, taskTitle, troubleLook, troubleOf, troubleText, webAddress } from '../model/director.ts'
import type { Director, JournalEntry, OverRow, ScheduledEntry, Trouble } from '../model/nouns.ts'
import type { Look } from '../model/states.ts'
import { clock, literal, many, span } from '../model/text.ts'
import { path, post } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { DirectorRow, useDirectors } from '../parts/directors.tsx'
import { Icon, StateIcon } from '../parts/icons.tsx'
import { LandButton } from '../parts/land.tsx'
import { useOnce } from '../parts/once.ts'
import { Ago, Empty, Literal, Problem } from '../parts/text.tsx'
import { say, sayRefused } from '../parts/toasts.tsx'

const GOALS = 'claude'  // the type of directors that takes them
const LEVELS: Record<string, Look> = { error: 'bad', warn: 'wait' }

export function Directors({ name }: { name: string | null }) {
  const { value, error, reload } = useDirectors()
  if (error) return <div class="wide"><h1 class="unseen">Directors</h1><Problem error={error} /></div>
  if (!value) return <Empty title="Asking…" />
  if (!value.length) {
    return <div class="wide"><h1 class="unseen">Directors</h1><div class="card"><Empty title="No directors yet">They bring work in by themselves: <code>bullpen director init scheduler</code></Empty></div></div>
  }
  const open = name === null ? value[0] : value.find(one => one.name === name)
  return (
    <div class="two">
      <section aria-label="Directors">
        <h1 class="h">Directors <b class="badge">{value.length}</b></h1>
        <div class="card rows">{value.map(one => <DirectorRow key={one.name} director={one} isOpen={one === open} />)}</div>
      </section>
      {open ? <One director={open} isNamed={name !== null} onChange={reload} /> : <div class="card"><Empty title="No director is called so"><a href="/directors">All directors</a></Empty></div>}
    </div>
  )
}

function One({ director, isNamed, onChange }: { director: Director; isNamed: boolean; onChange: () => void }) {
  const { name, says, problem, file_problem, restarts, since, state } = director
  const isLive = useWorld(world => world.link.is === 'live')
  const look = directorLook(director)
  const troubles = says?.problems ?? []
  // What holds up one of its tasks stands there.
  const others = troubles.filter(trouble => !says?.tasks.some(task => troubleOf(task, [trouble])))
  return (
    <div class="stack" data-narrow-first={isNamed || undefined}>
      <section class="card" aria-label={`Director ${name}`}>
        <header>
          <a class="icon-btn only-narrow" href="/directors" aria-label="All directors"><Icon name="back" /></a>
          <h2>{name}</h2>
          <span class={`state ${look}`}><StateIcon look={look} />{isLive ? '' : 'was '}{directorState(director, Date.now() / 1000)}</span>
        </header>
        <dl class="pad pairs">
          {says && <><dt>Type</dt><dd><Literal text={says.type || 'it does not say'} /></dd></>}
          {since !== null && <><dt>{director.pid === null ? 'Ended' : 'Runs since'}</dt><dd>{clock(since)} (<Ago at={since} />)</dd></>}
          {says?.last_poll ? <><dt>Last look</dt><dd>{clock(says.last_poll)} (<Ago at={says.last_poll} />)</dd></> : null}
          {restarts > 0 && <><dt>Crashes</dt><dd>{many(restarts, 'restart')} since it was started</dd></>}
          {says?.current_task && <><dt>Works on</dt><dd><Literal text={says.current_task.prompt_preview || says.current_task.id} /></dd></>}
          {(state === 'gone' || state === 'stopped') && <><dt>To start it</dt><dd><code>bullpen director start {name}</code></dd></>}
          {director.pid !== null && !says && <><dt>Says</dt><dd>nothing: it does not answer</dd></>}
        </dl>
        {problem && !says?.problems.length && <div class="pad"><Problem error={new Error(problem)} /></div>}
        {file_problem && <div class="pad"><Problem error={new Error(`its file is wrong · ${file_problem}`)} /></div>}
      </section>
      {others.length > 0 && <Part title="Held up" count={others.length}>{others.map(one => <Held key={one.about} trouble={one} />)}</Part>}
      {says && (
        <Part title="Holds now" count={says.tasks.length}>
          {says.tasks.length === 0 && <Empty title="Nothing" />}
          {says.tasks.map((task, at) => <TaskLine key={at} director={says.type === GOALS ? name : ''} task={task} trouble={troubleOf(task, troubles)} onEnd={onChange} />)}
        </Part>
      )}
      {says?.type === GOALS && <GoalForm director={name} onGiven={onChange} />}
      {says && says.schedule.length === 0 && says.over.length > 0 && (
        <Part title="Over" count={null}>{says.over.map(row => <Over key={row.id} row={row} />)}</Part>
      )}
      {says && says.next_runs.length > 0 && (
        <Part title="Next runs" count={null}>
          <ul class="news pad-y">{says.next_runs.map(run => <li key={`${run.name}${run.at}`}><span class="idle"><StateIcon look="wait" size={13} /></span><span><b><Literal text={run.name} /></b> in {span(run.at - Date.now() / 1000)}</span><time class="dim small">{clock(run.at)}</time></li>)}</ul>
        </Part>
      )}
      {says && says.schedule.length > 0 && (
        <Part title="Schedule" count={says.schedule.length}>{says.schedule.map(one => <Scheduled key={one.name} director={name} entry={one} onRun={onChange} />)}</Part>
      )}
      {says && says.log.length > 0 && (
        <Part title="Journal" count={null}>
          <ul class="news pad-y">{[...says.log].reverse().map((entry, at) => <Entry key={at} entry={entry} />)}</ul>
          <p class="pad dim small">All of it: <code>bullpen director logs {name}</code></p>
        </Part>
      )}
    </div>
  )
}

function Part({ title, count, children }: { title: string; count: number | null; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={title}>
      <header><h2>{title}</h2>{count !== null && <b class="badge">{count}</b>}</header>
      {children}
    </section>
  )
}

function Held({ trouble }: { trouble: Trouble }) {
  const look = troubleLook(trouble)
  return (
    <div class="row tall">
      <span class={`state ${look}`}><StateIcon look={look} /></span>
      <span class="anywhere">{trouble.about && <><b><Literal text={trouble.about} /></b> </>}<Literal text={troubleText(trouble, Date.now() / 1000)} /></span>
    </div>
  )
}

function Scheduled({ director, entry, onRun }: { director: string; entry: ScheduledEntry; onRun: () => void }) {
  const [isAsking, setAsking] = useState(false)
  const isLive = useWorld(world => world.link.is === 'live')
  const look = lastLook(entry)
  const at = entry.last?.completed_at ?? null
  const run = async () => {
    setAsking(true)
    try {
      await post(`/directors${path(director)}/schedule${path(entry.name)}/run`)
      say(`${entry.name} runs as soon as an agent is free`)
      onRun()
    } catch (error) {
      sayRefused(error)
    } finally {
      setAsking(false)
    }
  }
  return (
    <div class="row tall">
      <span class={`state ${look}`}><StateIcon look={look} /></span>
      <span class="anywhere"><b><Literal text={entry.name} /></b> {entry.cron && <code><Literal text={entry.cron} /></code>} <span class="what"><Literal text={entry.timezone ?? ''} /> · <Literal text={lastRun(entry)} />{at !== null && <> (<Ago at={at} />)</>}</span></span>
      <span class="fig">{entry.last?.task_id && <a href={`/tasks${path(entry.last.task_id)}`}>task</a>} <button class="btn" disabled={!isLive || isAsking} aria-label={`Run now: ${literal(entry.name)}`} onClick={() => void run()}>Run now</button></span>
    </div>
  )
}

/** A goal: an agent leads others to it. */
function GoalForm({ director, onGiven }: { director: string; onGiven: () => void }) {
  const [prompt, setPrompt] = useState('')
  const once = useOnce()
  const [error, setError] = useState<unknown>(null)
  const [isSent, setSent] = useState(false)
  const isLive = useWorld(world => world.link.is === 'live')
  const give = async () => {
    setSent(true)
    setError(null)
    try {
      await post(`/directors${path(director)}/goals`, { prompt, request: once.id(prompt) })
      setPrompt('')
      once.done()
      say(`${director} leads others to it as soon as it can`)
      onGiven()
    } catch (failure) {
      setError(failure)
    } finally {
      setSent(false)
    }
  }
  return (
    <section class="card" aria-label="New goal">
      <header><h2>New goal</h2></header>
      <form class="pad stack" onSubmit={event => { event.preventDefault(); void give() }}>
        <label><span>What is to be reached, and how one sees that it is</span><textarea required rows={4} value={prompt} onInput={event => setPrompt(event.currentTarget.value)}
          onKeyDown={event => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && prompt.trim() && isLive && !isSent) void give() }} /></label>
        {error !== null && <Problem error={error} />}
        <div class="acts"><button class="btn main" disabled={!isLive || isSent || !prompt.trim()}>{isSent ? 'Giving…' : 'Give the goal'}</button></div>
      </form>
    </section>
  )
}

function Over({ row }: { row: OverRow }) {
  const look = overLook(row)
  const words = [row.state, row.reason].filter(Boolean).join(': ')
  const landing = useWorld(world => row.branch ? world.landings.findLast(one => one.name === row.branch) : undefined)
  return (
    <>
      <div class="row tall">
        <span class={`state ${look}`}><StateIcon look={look} /></span>
        <span class="anywhere">
          <b><Literal text={taskTitle(row)} /></b> <span class="what"><Literal text={words} /></span>
          {row.branch && <p class="what"><Literal text={goalBranch(row, landing)} /></p>}
          {row.report && <details><summary>Report</summary><p class="said"><Literal text={row.report} /></p></details>}
        </span>
        <span class="fig">{row.task_id && <a href={`/tasks${path(row.task_id)}`}>task</a>} {row.completed_at > 0 && <Ago at={row.completed_at} />}</span>
      </div>
      {/* Not in the row: it would clip the question (content-visibility). */}
      {row.branch && canLand(row, landing) && <div class="acts"><LandButton name={row.branch} branch={row.branch} commits={row.commit_count ?? 0} loose={0} /></div>}
    </>
  )
}

function EndGoal({ director, id, title, onEnd }: { director: string; id: string; title: string; onEnd: () => void }) {
  const [isAsking, setAsking] = useState(false)
  const isLive = useWorld(world => world.link.is === 'live')
  const end = async () => {
    setAsking(true)
    try {
      await post(`/directors${path(director)}/goals${path(id)}/cancel`)
      onEnd()
    } catch (error) {
      sayRefused(error)
    } finally {
      setAsking(false)
    }
  }
  return <button class="btn" disabled={!isLive || isAsking} aria-label={`End: ${literal(title)}`} onClick={() => void end()}>End</button>
}

/** Of a goal's `director` it can be ended. */
function TaskLine({ director, task, trouble, onEnd }: { director: string; task: Record<string, unknown>; trouble: Trouble | undefined; onEnd: () => void }) {
  const { id: own, task_id: id, branch, pull, since, created_at: created } = task
  const state = String(task['state'] ?? '')
  const at = typeof since === 'number' ? since : typeof created === 'number' ? created : null
  const address = webAddress(pull)
  const look = trouble ? troubleLook(trouble) : 'idle'
  return (
    <div class="row tall">
      <span class={`state ${look}`}><StateIcon look={trouble ? look : id ? 'work' : 'wait'} /></span>
      <span class="anywhere"><b><Literal text={taskTitle(task)} /></b> <span class="what"><Literal text={state} />{typeof branch === 'string' && branch && <> · on branch <Literal text={branch} /></>}</span>{trouble && <span class={`held ${look}`}><Literal text={troubleText(trouble, Date.now() / 1000)} /></span>}{address && <> · <a href={address} target="_blank" rel="noreferrer noopener">pull request</a></>}</span>
      <span class="fig">{typeof id === 'string' && id && <a href={`/tasks${path(id)}`}>task</a>} {at !== null && <Ago at={at} />} {director && typeof own === 'string' && state !== 'cancelling' && <EndGoal director={director} id={own} title={taskTitle(task)} onEnd={onEnd} />}</span>
    </div>
  )
}

function Entry({ entry }: { entry: JournalEntry }) {
  const { time, level, message, ...fields } = entry
  const look = LEVELS[level] ?? 'idle'
  const rest = Object.entries(fields).map(([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' · ')
  return <li><span class={look}><StateIcon look={look} size={13} /></span><span class="anywhere"><Literal text={message} />{rest && <span class="dim small"> <Literal text={rest} /></span>}</span><time class="dim small">{clock(time)}</time></li>
}
