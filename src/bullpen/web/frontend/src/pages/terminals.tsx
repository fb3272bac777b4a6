// Several terminals side by side: those that the address names, else all that run.
import { isEnded } from '../model/states.ts'
import { path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { TerminalView } from '../agent/terminal.tsx'
import { Chip, Empty } from '../parts/text.tsx'

const MOST = 6

export function Terminals() {
  const agents = useWorld(world => world.agents)
  const wanted = new URLSearchParams(location.search).get('agents')?.split(',')
  const shown = Object.values(agents)
    .filter(agent => agent.kind === 'interactive' && !isEnded(agent.state) && (!wanted || wanted.includes(agent.name) || (agent.pod && wanted.includes(`pod:${agent.pod}`))))
    .slice(0, MOST)
  if (!shown.length) return <div class="card"><Empty title="No terminal is open"><a href="/">Overview</a></Empty></div>
  return (
    <div class="side-by-side">
      <h1 class="unseen">Terminals</h1>
      {shown.map(agent => (
        <section key={agent.name} class="card pad stack" aria-label={`terminal of ${agent.name}`}>
          <div class="acts"><a href={`/agents${path(agent.name)}`}><b>{agent.name}</b></a><Chip state={agent.state} /></div>
          <TerminalView name={agent.name} run={agent.run} />
        </section>
      ))}
    </div>
  )
}
