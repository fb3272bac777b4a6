// How a director stands, in the words of a person. Pure.
import { landingWords } from './landing.ts'
import type { Director, Landing, OverRow, ScheduledEntry, Trouble } from './nouns.ts'
import type { Look } from './states.ts'
import { many, span } from './text.ts'

/** Whether it is worth a line where only what goes on is shown: it was started, or nobody can start it. */
export function isNotable({ state, file_problem }: Director): boolean {
  return state !== 'stopped' || file_problem !== ''
}

export function directorLook({ state, problem, file_problem }: Director): Look {
  switch (state) {
    case 'error': case 'gone': return 'bad'
    case 'starting': case 'draining': case 'restarting': return 'wait'
    case 'stopped': return file_problem ? 'bad' : 'done'
    case 'working': return problem || file_problem ? 'wait' : 'work'
    case 'idle': case 'running': return problem || file_problem ? 'wait' : 'idle'
  }
}

/** Its state with what it does about a crash: `starts again in 8 s`. */
export function directorState({ state, again_at }: Director, now: number): string {
  if (state !== 'restarting') return state
  return again_at === null ? 'starts again' : `starts again in ${span(again_at - now)}`
}

/** What holds it up, what is wrong with its file, or what it is at. */
export function directorDetail(director: Director): string {
  const { problem, file_problem, restarts, says } = director
  const parts = [problem, file_problem, restarts > 0 ? many(restarts, 'restart') : '']
  if (!problem && says) parts.push(says.tasks.length ? `holds ${many(says.tasks.length, 'task')}` : '')
  return parts.filter(Boolean).join(' · ')
}

/** What holds something up, in the words of `bullpen director list`. */
export function troubleText({ reason, hint, at, wait_seconds: wait, is_given_up: isGivenUp }: Trouble, now: number): string {
  const again = isGivenUp ? 'given up' : `again in ${span(at + wait - now)}`
  return [...reason.split('\n'), again, ...hint.split('\n')].map(part => part.trim()).filter(Boolean).join(' · ')
}

export function troubleLook({ is_given_up: isGivenUp }: Trouble): Look {
  return isGivenUp ? 'bad' : 'wait'
}

/** What holds up one of its tasks. */
export function troubleOf(task: Record<string, unknown>, troubles: Trouble[]): Trouble | undefined {
  return troubles.find(trouble => trouble.about && trouble.about === task['id'])
}

/** What came of the last run of an entry. */
export function lastRun({ last, running }: ScheduledEntry): string {
  const now = running?.length ? 'runs now' : ''
  const before = last ? [last.state, last.reason].filter(Boolean).join(': ') : now ? '' : 'has not run yet'
  return [now, before && now ? `before: ${before}` : before].filter(Boolean).join(' · ')
}

/** How that looks. */
export function lastLook({ last, running }: ScheduledEntry): Look {
  if (running?.length) return 'work'
  return !last ? 'idle' : last.state === 'completed' ? 'done' : last.state === 'failed' ? 'bad' : 'wait'
}

/** What one of its tasks is called: types of directors say it by different names. */
export function taskTitle(task: Record<string, unknown>): string {
  const { issue, title, name, goal, id } = task
  const words = [typeof issue === 'number' ? `#${issue}` : '', title ?? name ?? goal ?? id]
  return words.filter(word => typeof word === 'string' && word).join(' ') || 'a task'
}

/** Where what came of a goal is, or went: in the words of `bullpen director goal`. `landing`: the last of its branch. */
export function goalBranch({ branch, commit_count: count }: OverRow, landing: Landing | undefined): string {
  if (!branch) return ''
  if (!count) return `nothing has landed on its branch ${branch}`
  const where = landing ? `${landingWords(landing)} → ${landing.target}` : `to look at it: bullpen diff ${branch}`
  return `${many(count, 'commit')} on branch ${branch} · ${where}`
}

/** Whether the person may want to have it in a branch of theirs. */
export function canLand({ branch, commit_count: count }: OverRow, landing: Landing | undefined): boolean {
  return Boolean(branch && count) && landing?.status.state !== 'landed'
}

/** How something that is over looks. */
export function overLook({ state }: OverRow): Look {
  if (['failed', 'given up', 'rejected'].includes(state)) return 'bad'
  return ['completed', 'merged', 'approved', 'pull opened', 'no change'].includes(state) ? 'done' : 'idle'
}

/** An address that a browser may be sent to; of others only the text is shown. */
export function webAddress(value: unknown): string {
  return typeof value === 'string' && /^https?:\/\/[^\s]+$/.test(value) ? value : ''
}
