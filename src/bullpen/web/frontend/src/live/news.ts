// Events that a person wants to hear of, in words. Pure.
import type { HubEvent, LandingState } from '../model/nouns.ts'

export type Tone = 'good' | 'bad' | 'need' | 'plain'
export interface News { id: number; at: number; agent: string; text: string; tone: Tone; to: string }

/** What an event says to a person; null for all that goes by. */
export function newsOf(event: HubEvent): News | null {
  const said = say(event)
  if (!said) return null
  const [text, tone, to] = said
  return { id: event.id, at: event.time, agent: whose(event), text, tone, to }
}

function whose(event: HubEvent): string {
  if (event.kind === 'message.sent') return String(event.data['from'])
  return event.kind.startsWith('pod.') ? '' : event.agent
}

function say(event: HubEvent): [string, Tone, string] | null {
  const data = event.data
  const agent = `/agents/${encodeURIComponent(event.agent)}`
  switch (event.kind) {
    case 'agent.started': return ['started', 'plain', agent]
    case 'agent.stopped': return ended(data, agent)
    case 'agent.failed': return [`failed: ${String(data['why'])}`, 'bad', agent]  // a turn of it
    case 'agent.restarted': return ['was started again', 'plain', agent]
    case 'agent.gave_up': return ['is not started again: it ended too often', 'bad', agent]
    case 'agent.parked': return ['waits for its rate limit', 'plain', agent]
    case 'approval.answered': return answered(data)
    case 'child.reported': return [`reported ${String(data['status'])}`, data['status'] === 'failure' ? 'bad' : 'good', agent]
    case 'budget.warned': return ['has used most of its budget', 'need', agent]
    case 'budget.reached': return ['has used up its budget', 'bad', agent]
    case 'landing.state': return landing(data)
    case 'task.state': return task(data, event.agent === '')
    case 'message.sent': return event.agent === 'root' ? ['wrote to you', 'need', '/approvals'] : null
    case 'pod.launched': return [`Pod ${String(data['pod'])} runs`, 'plain', '/']
    case 'pod.failed': return [`Pod ${String(data['pod'])} could not start`, 'bad', '/']
    case 'pod.finished': return data['failed'] ? [`Pod ${String(data['pod'])} has failed`, 'bad', '/'] : [`Pod ${String(data['pod'])} has finished`, 'good', '/']
    case 'hub.started': return ['The hub started', 'plain', '']
    default: return null
  }
}

function ended(data: Record<string, unknown>, to: string): [string, Tone, string] {
  if (data['lost']) return ['was lost', 'bad', to]
  const signal = data['signal']
  const code = data['code']
  if (signal) return [`ended by signal ${String(signal)}`, 'plain', to]
  return code ? [`ended with code ${String(code)}`, 'bad', to] : ['ended', 'plain', to]
}

function answered(data: Record<string, unknown>): [string, Tone, string] | null {
  const { decision, by, name, answers } = data as { decision?: string; by?: string; name?: string; answers?: unknown[] }
  if (!decision) return null  // decided elsewhere
  const who = name || (by === 'reviewer' ? 'the reviewer' : by === 'owner' ? 'you' : by ?? '')
  const what = answers?.length ? 'was answered' : decision === 'allow' ? 'was allowed' : 'was denied'
  return [`${what}${who ? ` by ${who}` : ''}`, decision === 'allow' ? 'plain' : 'bad', '/approvals']
}

function landing(data: Record<string, unknown>): [string, Tone, string] | null {
  const entry = data as { status?: LandingState; target?: string }
  switch (entry.status?.state) {
    case 'landed': return [`landed on ${entry.target ?? 'its target'}`, 'good', '/changes']
    case 'came_back': return [entry.status.why === 'conflict' ? `conflicts with ${entry.target}` : 'did not pass the checks', 'bad', '/changes']
    case 'refused': return ['cannot land', 'bad', '/changes']
    case 'cancelled': return entry.status.reason ? [`does not land: ${entry.status.reason}`, 'plain', '/changes'] : null  // else the person did it
    default: return null
  }
}

/** `isNobodys`: no agent has taken it. */
function task(data: Record<string, unknown>, isNobodys: boolean): [string, Tone, string] | null {
  const to = `/tasks/${encodeURIComponent(String(data['task']))}`
  switch (data['state']) {
    case 'completed': return ['completed a task', 'good', to]
    case 'failed': return [isNobodys ? 'A task failed' : 'failed a task', 'bad', to]
    case 'cancelled': return [isNobodys ? 'A task was cancelled' : 'had a task cancelled', 'plain', to]
    default: return null
  }
}

/** `others`: agents besides the first; `times`: how often in all. */
export interface Gathered extends News { others: number; times: number }
const TOGETHER_SECONDS = 120

/** The same as few lines: what happened to several at about the same time is said once. */
export function gather(news: News[]): Gathered[] {
  const lines: Gathered[] = []
  let agents = new Set<string>()
  for (const item of news) {
    const line = lines.at(-1)
    if (line && line.text === item.text && line.tone === item.tone && line.at - item.at < TOGETHER_SECONDS) {
      line.times++
      line.others = agents.add(item.agent).size - 1
    } else {
      lines.push({ ...item, others: 0, times: 1 })
      agents = new Set([item.agent])
    }
  }
  return lines
}
