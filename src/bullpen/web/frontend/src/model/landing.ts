// What an entry of a landing queue says. Pure.
import type { Landing, LandingState } from './nouns.ts'

type CameBack = Extract<LandingState, { state: 'came_back' }>

export function landingWords(landing: Landing): string {
  const status = landing.status
  switch (status.state) {
    case 'waiting': return 'waits for its turn'
    case 'building': return 'is merged'
    case 'verifying': return landing.verify ? `is checked: ${landing.verify}` : 'is checked'
    case 'moving': return `${landing.target} is about to have it`
    case 'came_back': {
      const problem = status.why === 'conflict' ? `conflicts in ${status.files.join(', ')}` : status.problem || 'the checks failed'
      return `${problem}; ${whoAnswers(landing.branch, status)}`
    }
    case 'landed': return status.is_there ? `${landing.target} had it already` : `landed as ${status.commit.slice(0, 7)}`
    case 'refused': return status.message
    case 'cancelled': return status.reason ? `was taken out of the queue: ${status.reason}` : 'was taken out of the queue'
  }
}

function whoAnswers(branch: string, status: CameBack): string {
  if (!status.is_agent_told) return `no agent has it, it lands when you have committed on ${branch}`
  return status.is_agent_running ? 'its author was told' : 'its author does not run, the message waits for it'
}
