// The other machines of the fleet, and who runs there. Nothing where there is no fleet.
import { useEffect, useState } from 'preact/hooks'
import { agentLook, type Fleet, type Host, labelsText, others, shownAgents, trouble } from '../model/fleet.ts'
import { many } from '../model/text.ts'
import { useWorld } from '../live/store.ts'
import { useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Ago, Literal } from './text.tsx'

const LOOK_MS = 5_000
const MOST_AGENTS = 8

export function Machines() {
  const [round, setRound] = useState(0)
  const isLive = useWorld(world => world.link.is === 'live')
  const { value } = useFetched<Fleet>('/fleet', {}, round)
  useEffect(() => {
    const timer = setInterval(() => { if (document.visibilityState === 'visible') setRound(n => n + 1) }, LOOK_MS)
    return () => clearInterval(timer)
  }, [])
  if (!value || value.link === 'none') return null
  const hosts = others(value)
  return (
    <section class="card" aria-label="Other machines">
      <header><h2>Other machines</h2><b class="badge">{hosts.length}</b></header>
      {trouble(value) && <p class="pad small wait"><Literal text={trouble(value)} /></p>}
      {!hosts.length && <p class="pad dim small">Nobody else is in the fleet yet.</p>}
      {hosts.map(host => <Machine key={host.state.name} host={host} isNow={isLive && value.link === 'connected' && host.reachable} />)}
    </section>
  )
}

function Machine({ host, isNow }: { host: Host; isNow: boolean }) {
  const agents = shownAgents(host)
  const look = isNow ? 'done' : 'bad'
  return (
    <div class="machine" role="group" aria-label={`Machine ${host.state.name}`}>
      <div class="row">
        <span class={`state ${look}`}><StateIcon look={look} /></span>
        <span class="who"><b><Literal text={host.state.name} /></b> <span class="what">{isNow ? '' : 'cannot be reached · had '}{agents.length ? many(agents.length, 'agent') : 'no agent'} running<Literal text={labelsText(host) && ` · ${labelsText(host)}`} /></span></span>
        <span class="fig">{!isNow && <Ago at={host.last_heard} />}</span>
      </div>
      {agents.slice(0, MOST_AGENTS).map(agent => {
        const look = agentLook(agent, isNow)
        return (
          <div key={agent.name} class="row within">
            <span class={`state ${look}`}><StateIcon look={look} /></span>
            <span class="who"><b><Literal text={agent.name} /></b> <span class="what">{isNow ? '' : 'was '}<Literal text={agent.words} /></span></span>
            <span class="fig"><Ago at={agent.since} /></span>
          </div>
        )
      })}
      {agents.length > MOST_AGENTS && <p class="pad dim small">and {agents.length - MOST_AGENTS} more · <code>bullpen list --fleet</code></p>}
    </div>
  )
}
