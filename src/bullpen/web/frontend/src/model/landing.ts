// What an entry of a landing queue says. Pure.
import type { Landing } from './nouns.ts'

export function landingWords(landing: Landing): string {
  const status = landing.status
  switch (status.state) {
    case 'waiting': return 'waits for its turn'
    case 'building': return 'is merged'
    case 'verifying': return landing.verify ? `is checked: ${landing.verify}` : 'is checked'
    case 'moving': return `${landing.target} is about to have it`
    case 'came_back': {
      const problem = status.why === 'conflict' ? `conflicts in ${status.files.join(', ')}` : status.problem || 'the checks failed'
      return `${problem}; ${status.is_agent_told ? 'its author was told' : `no agent has it, it lands when you have committed on ${landing.branch}`}`
    }
    case 'landed': return status.is_there ? `${landing.target} had it already` : `landed as ${status.commit.slice(0, 7)}`
    case 'refused': return status.message
    case 'cancelled': return status.reason ? `was taken out of the queue: ${status.reason}` : 'was taken out of the queue'
  }
}
