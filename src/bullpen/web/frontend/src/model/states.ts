// What a state means to a person: one of seven looks, each with a word, a shape and a colour.
import type { Agent, Approval, State } from './nouns.ts'
import { clock } from './text.ts'

export type Look = 'need' | 'work' | 'wait' | 'idle' | 'bad' | 'done' | 'dark'

export function lookOf(state: State): Look {
  switch (state.state) {
    case 'blocked': return 'need'
    case 'working': return state.doing === 'rate-limited' || state.doing === 'retrying' ? 'wait' : 'work'
    case 'starting': case 'draining': return 'wait'
    case 'idle': return state.limited_until ? 'wait' : state.failed ? 'bad' : 'idle'
    case 'error': case 'lost': return 'bad'
    case 'exited': return state.signal || state.code ? 'bad' : 'done'
    case 'ended': return 'done'
    case 'unknown': return 'dark'
  }
}

/** The state in words, without its name: what it does, or why not. */
export function detailOf(state: State): string {
  switch (state.state) {
    case 'working':
      if (state.doing === 'review') return `review of ${state.tool ?? ''}`
      if (state.doing === 'rate-limited' && state.until) return `rate limited until ${clock(state.until)}, then goes on`
      return state.tool || state.doing || ''
    case 'idle':
      if (state.limited_until) return `rate limited until ${clock(state.limited_until)}, then goes on`
      return state.failed ? `failed: ${state.failed}` : ''
    case 'blocked': return state.tool && state.on !== 'question' ? `${state.on}: ${state.tool}` : state.on ?? ''
    case 'exited': return state.signal ? `signal ${state.signal}` : state.code ? `code ${state.code}` : ''
    case 'error': case 'lost': case 'ended': return state.reason ?? ''
    case 'unknown': return state.missing ?? ''
    default: return ''
  }
}

export function isEnded(state: State): boolean {
  return state.state === 'exited' || state.state === 'lost' || state.state === 'ended'
}

/** Those whose own terminal alone can be answered: nothing of them is in the inbox. */
export function askingInTerminal(agents: Record<string, Agent>, approvals: Approval[]): Agent[] {
  const runs = new Set(approvals.map(one => one.run))
  return Object.values(agents).filter(agent => agent.state.state === 'blocked' && !runs.has(agent.run))
}
